"""Route rows: the runs of all modes over all questions first, since what a mode costs is told by all of them, then a row each."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from data_synth.relevance.split import split_questions
from data_synth.relevance.types import FEATURE_DIGITS, GoldQuestion
from data_synth.route.runs import DIGITS, Runs, Track, best_mode, by_cost, run_modes
from data_synth.route.types import RouteRow
from data_synth.types import Dropped
from graph.retrieve.learned.query_features import query_features
from graph.retrieve.parts.query import Query
from graph.shared.modes import Mode
from graph.shared.types import Floats, LanguageModel

if TYPE_CHECKING:
    from graph.index.index import Index

NO_GOLD_DOCUMENT = "the question has no gold document"


def route_rows(
    index: Index,
    asked: Sequence[GoldQuestion],
    modes: Sequence[Mode],
    tolerance: float,
    seed: int,
    model: LanguageModel | None,
    shown: Track,
) -> Iterator[RouteRow | Dropped]:
    """A row for each question with gold documents, in order; those without are dropped."""
    split = split_questions(asked, seed)
    measurable = [each for each in asked if each.question.gold_sources]
    yield from (Dropped(NO_GOLD_DOCUMENT) for _ in range(len(asked) - len(measurable)))
    if not measurable:
        return
    runs = run_modes(index, [each.question for each in measurable], modes, model, shown)
    cheap_first = by_cost(runs)
    vectors_QD = index.encode_queries([each.question.text for each in measurable])
    for each, of_question, vector_D in zip(measurable, runs, vectors_QD, strict=True):
        query = Query(each.question.text, vector_D)
        started = time.perf_counter()
        values = query_features(index, query)
        seconds = time.perf_counter() - started
        best = best_mode(of_question, cheap_first, tolerance)
        yield make_row(each, split[each.question.id], of_question, best, values, 1000 * seconds)


def make_row(each: GoldQuestion, split: str, runs: Runs, best: str, features_F: Floats, features_ms: float) -> RouteRow:
    """The row of one question."""
    return RouteRow(
        id=each.question.id,
        question=each.question.text,
        kind=each.question.kind,
        split=split,
        best_mode=best,
        runs=runs,
        features=tuple(round(float(value), FEATURE_DIGITS) for value in features_F),
        features_ms=round(features_ms, DIGITS),
    )
