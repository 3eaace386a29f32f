"""From an index and a file of questions to preference rows and what is told of their origin: what the command and Python both call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from data_synth.contexts import check_gold, pick_questions, without_twins
from data_synth.preferences.preferences import BY_RULES, preference_rows
from data_synth.types import Dropped, PreferenceRow
from graph.documents.questions import read_questions
from graph.index.index import Index
from graph.retrieve import RetrieveSettings
from graph.shared.console import track
from graph.shared.types import OpenModel


@dataclass(frozen=True)
class Models:
    """SPECs of the models that write reasonings and of the one that checks them; their calls are kept in `ledger`, if there is one."""

    reasoners: Sequence[str] = ()
    checker: str | None = None
    ledger: Path | None = None


@dataclass(frozen=True)
class PreferenceRun:
    """Rows, made as they are read, and their origin in words."""

    rows: Iterable[PreferenceRow | Dropped]
    origin: Mapping[str, str]


def preference_run(
    index: Index,
    questions: Path,
    settings: RetrieveSettings,
    models: Models,
    open_model: OpenModel,
    *,
    hard_negatives: float,
    splits: Sequence[str],
    first: int | None,
) -> PreferenceRun:
    """Rows of the questions of `splits` (none: all), of the `first` only if given, with contexts of up to `settings.top_k` excerpts.

    UserError for questions whose gold documents the index does not have.
    """
    kept, twins = without_twins(pick_questions(read_questions(questions), list(splits))[:first])
    check_gold(kept, frozenset(index.sources()))
    reasoners = [open_model(spec, models.ledger) for spec in models.reasoners]
    judge = open_model(models.checker, models.ledger) if models.checker else None
    tokens = settings.max_context_tokens
    origin = {
        "Index": index.folder.name,
        "Questions": questions.name,
        "Contexts": f"0 to {settings.top_k} excerpts, best first, by mode {settings.mode}"
        + (f", at most {tokens:,} tokens together" if tokens else ""),
        "Reasoning written by": ", ".join(model.name for model in reasoners) or BY_RULES,
        "Reasoning checked by": judge.name if judge else "encoder similarity and names" if reasoners else "nobody",
        "Share of hard negatives asked for": f"{hard_negatives:g}",
    }
    asked = kept if first is not None else track(kept, "questions", len(kept))
    return PreferenceRun(
        chain(twins, preference_rows(index, asked, settings, reasoners, judge, hard_negatives)), origin
    )
