"""From an index and a file of questions to preference rows and what is told of their origin: what the command and Python both call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from data_synth.contexts import check_gold, draw_questions, pick_questions, without_twins
from data_synth.preferences.preferences import BY_RULES, preference_rows
from data_synth.types import Dropped, PreferenceRow
from graph.documents.questions import read_questions
from graph.index.index import Index
from graph.retrieve import RetrieveSettings
from graph.shared.console import track
from graph.shared.errors import UserError
from graph.shared.types import OpenModel


@dataclass(frozen=True)
class Models:
    """SPECs of the models that write reasonings and of the one that checks them; their calls are kept in `ledger`, if there is one."""

    reasoners: Sequence[str] = ()
    checker: str | None = None
    ledger: Path | None = None


@dataclass(frozen=True)
class Asked:
    """Which questions of `file`: those of `splits` (none: all), of which `limit` are drawn by the seed; over contexts of which `sizes` (none: all)."""

    file: Path
    splits: Sequence[str] = ()
    limit: int | None = None
    seed: int = 0
    sizes: Sequence[int] = ()


@dataclass(frozen=True)
class PreferenceRun:
    """Rows, made as they are read, and their origin in words."""

    rows: Iterable[PreferenceRow | Dropped]
    origin: Mapping[str, str]


def preference_run(
    index: Index,
    asked: Asked,
    settings: RetrieveSettings,
    models: Models,
    open_model: OpenModel,
    *,
    hard_negatives: float,
    first: int | None,
) -> PreferenceRun:
    """Rows of the questions asked, of the `first` only if given, with contexts of up to `settings.top_k` excerpts.

    UserError for questions whose gold documents the index does not have, and for a share of hard negatives that is none.
    """
    if not 0 <= hard_negatives <= 1:
        raise UserError(f"hard negatives: {hard_negatives:g} of all rows", "a share of 0 to 1", "change it")
    picked = pick_questions(read_questions(asked.file), list(asked.splits))
    distinct, twins = without_twins(draw_questions(picked, asked.limit, asked.seed)[:first])
    check_gold(distinct, frozenset(index.sources()))
    reasoners = [open_model(spec, models.ledger) for spec in models.reasoners]
    judge = open_model(models.checker, models.ledger) if models.checker else None
    tokens = settings.max_context_tokens
    sizes = ", ".join(map(str, asked.sizes)) or f"1 to {settings.top_k}"
    origin = {
        "Index": index.folder.name,
        "Questions": asked.file.name + (f", {asked.limit:,} of them drawn" if asked.limit else ""),
        "Contexts": f"{sizes} excerpts, shuffled, by mode {settings.mode}"
        + (f", at most {tokens:,} tokens together" if tokens else ""),
        "Reasoning written by": ", ".join(model.name for model in reasoners)
        or f"{BY_RULES}, evidence alone, all of it cited",
        "Reasoning checked by": judge.name if judge else "encoder similarity and names" if reasoners else "nobody",
        "Share of hard negatives": f"{hard_negatives:g}",
    }
    rows = preference_rows(index, distinct, settings, reasoners, judge, hard_negatives, asked.sizes)
    if first is None:
        # Rows, not questions: these are pulled many at a time, before a model is called.
        expected = len(distinct) * len(asked.sizes or range(settings.top_k)) * max(1, len(reasoners))
        rows = track(rows, "rows", expected)
    return PreferenceRun(chain(twins, rows), origin)
