"""`modegraph data import feedback`: the feedback of an index as three datasets, in one division into train, dev and test."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from data_synth.dataset.summary import Summary
from data_synth.dataset.write import check_folder, write_dataset
from data_synth.feedback.gold import gold_questions
from data_synth.feedback.judged import judge
from data_synth.feedback.last_word import last_words
from data_synth.feedback.rows import Lookup, preference_rows
from data_synth.forms import Form
from data_synth.preferences.preference_form import PREFERENCES
from data_synth.relevance.rows import relevance_rows
from data_synth.relevance.split import make_split
from data_synth.relevance.types import FORM as RELEVANCE
from data_synth.relevance.types import SPLIT_BY, GoldQuestion, RelevanceRow
from data_synth.route.rows import route_rows
from data_synth.route.runs import parse_modes
from data_synth.route.types import FORM as ROUTE
from data_synth.types import Dropped
from graph.feedback.kept import read_feedback
from graph.index.index import Index
from graph.shared.console import track
from graph.shared.errors import UserError

NEGATIVES = 64
TOLERANCE = 0.01
SEED = 0
"""As `synth relevance` and `synth route` have them."""
DATASETS: Mapping[str, Form[Any]] = {"preferences": PREFERENCES, "relevance": RELEVANCE, "route": ROUTE}
"""The folders below --out."""


def check_out(out: Path) -> None:
    """UserError unless all of DATASETS can be written below `out`."""
    for name in DATASETS:
        check_folder(out / name)


def import_feedback(index: Index, out: Path, modes: Sequence[str]) -> dict[str, Summary]:
    """Write DATASETS below `out` from the feedback of `index`; routes are measured over `modes`. UserError where there is no feedback.

    What is the same feedback gives the same rows, but for milliseconds. A dataset without rows is written too: it takes the place of one
    from entries that were deleted.
    """
    entries = read_feedback(index.folder)
    if not entries:
        found = f"{index.folder}: no feedback"
        raise UserError(found, "an index that readers were served from", "serve it with `modegraph serve --feedback`")
    chosen = parse_modes(modes)
    check_out(out)
    told, lost = last_words(entries)
    lookup = Lookup(index)
    asked, gone = gold_questions(told, lookup)
    split = make_split(index, asked, SEED).questions if asked else {}
    better, unpaired = judge(told)
    gold = {each.question.id: each.gold_sources for each in asked}
    known = [replace(each, stated_split=split[each.question.id]) for each in asked if each.gold_sources]
    origin = {
        "Index": index.folder.name,
        "Encoder": index.encoder_source.fingerprint,
        "Feedback": f"{len(entries):,} entries of {len({each.user for each in entries}):,} readers",
        "Seed": str(SEED),
    }
    rows: dict[str, Iterable[Any]] = {
        "preferences": chain(lost, unpaired, preference_rows(better, lookup, split, gold)),
        "relevance": chain(gone, _relevance(index, known)),
        "route": route_rows(index, known, chosen, TOLERANCE, SEED, None, track) if known else (),
    }
    more = {"relevance": {SPLIT_BY: "passages"}, "route": {"Modes": ", ".join(chosen), "Tolerance": f"{TOLERANCE:g}"}}
    return {
        name: _write(out / name, rows[name], form, {**origin, **more.get(name, {})}) for name, form in DATASETS.items()
    }


def _relevance(index: Index, known: Sequence[GoldQuestion]) -> Iterator[RelevanceRow | Dropped]:
    """Rows whose gold is a passage as a whole, though it is given as a quote."""
    if known:
        for row in relevance_rows(index, known, make_split(index, known, SEED), NEGATIVES):
            yield row if isinstance(row, Dropped) else replace(row, labelled_by="passage")


def _write(folder: Path, rows: Iterable[Any], form: Form[Any], origin: Mapping[str, str]) -> Summary:
    folder.parent.mkdir(parents=True, exist_ok=True)
    return write_dataset(folder, rows, form, origin)
