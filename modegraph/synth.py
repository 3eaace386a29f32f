"""Training data from an index: `modegraph.synth.preferences(index, "questions.jsonl", out="my-pairs")`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from data_synth.contexts import QuestionSelection
from data_synth.dataset.write import Summary, ledger_of, write_dataset
from data_synth.preferences.preference_form import PREFERENCES
from data_synth.preferences.preferences import PreferenceModels, preference_run
from graph.config import parse_settings
from graph.errors import UserError
from graph.retrieve.parts.query import RetrieveSettings
from graph.shared.modes import DEFAULT_MODE, Mode
from modegraph.arguments import public_call
from modegraph.indexes import Index
from serve.engines import open_model as open_engine

__all__ = ["preferences"]


def preferences(
    index: Index,
    questions: str | Path,
    out: str | Path,
    *,
    mode: Mode = DEFAULT_MODE,
    top_k: int = 5,
    max_context_tokens: int | None = None,
    writers: Sequence[str] = (),
    judge: str | None = None,
    hard_negatives: float = 1.0,
    splits: Sequence[str] = (),
    context_sizes: Sequence[int] = (),
    limit: int | None = None,
    seed: int = 0,
    progress: bool = False,
) -> Summary:
    """Write preference pairs with contexts of increasing size to `out`, for questions with gold answers (in the format of examples/README.md).

    The options are those of `modegraph synth preferences` with the same names; without `writers` (model SPECs), gold sentences are quoted.
    UserError for gold documents that are not in the index; and, after the folder is written, if it has no rows or more than half were dropped.
    """
    folder = Path(out)
    with public_call(progress):
        values = {"mode": mode, "top_k": top_k, "max_context_tokens": max_context_tokens}
        settings = parse_settings(RetrieveSettings, values, "synth.preferences")
        models = PreferenceModels(writers, judge, ledger_of(folder, None))
        rows, origin = preference_run(
            index.current(),
            QuestionSelection(Path(questions), splits, limit, seed, context_sizes),
            settings,
            models,
            open_engine,
            hard_negatives=hard_negatives,
            first=None,
        )
        summary = write_dataset(folder, rows, PREFERENCES, origin)
    if summary.mostly_lost:
        dropped = sum(summary.drops.values())
        lost = f"{dropped:,} rows were dropped, only {summary.rows:,} remain" if dropped else "no row could be made"
        expected = "at least one row, and no fewer rows than were dropped"
        raise UserError(f"{folder}: {lost}", expected, f"see {folder}/README.md for the reasons")
    return summary
