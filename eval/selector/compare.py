"""`modegraph eval selector`: the same mode with several selectors, and what each selects of the same candidates.

The retrieval figures are those of `eval retrieval`; only the selector `llm` is given a model, so that what it costs is what choosing by
a model costs. The precision of a selection is measured apart, on one list of candidates for all, where gold sentences are known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from data_synth.relevance.labels import gold_rows
from eval.compare.measures import differences_of
from eval.retrieval.measure import COMPARED, RetrievalReport, Retrieve, evaluate_retrieval, measure_named
from eval.shared.statistics import Interval
from eval.shared.types import Measure
from graph.documents.questions import Question
from graph.index.index import Index
from graph.retrieve.parts.caller import Caller
from graph.retrieve.parts.gather import worth_of_propositions
from graph.retrieve.parts.passage_scores import own_scores, score_passages, score_propositions
from graph.retrieve.parts.query import Query
from graph.retrieve.parts.rank import top_rows
from graph.retrieve.selection.select import find_selector
from graph.shared.console import track
from graph.shared.types import Evidence, Ints, LanguageModel

SELECTION = "AP of the selection"
CALLS = "calls/query"
OFFERED = 20
"""Candidates that a selector chooses among for its precision: as many as `local` shows a model at a time."""


@dataclass(frozen=True)
class SelectorReport:
    """A retrieval report whose rows are selectors, model calls a query, and the precision of the selection (None: no gold sentences)."""

    retrieval: RetrievalReport
    calls: Measure
    selection: Measure | None
    selection_differences: Mapping[str, Interval]


def compare_selectors(
    index: Index,
    questions: Sequence[Question],
    selectors: Sequence[str],
    retrieve_with: Callable[[str], Retrieve],
    model: LanguageModel | None,
    top_k: int,
    seed: int,
) -> SelectorReport:
    """Every selector on every question with gold documents; the first is what differences are from. UserError as `eval retrieval`."""
    counters = {name: CallCounter(retrieve_with(name)) for name in selectors}
    retrieval = evaluate_retrieval(questions, counters, top_k, seed)
    ids = tuple(question.id for question in retrieval.questions)
    calls = Measure(CALLS, ids, {name: counter.of_last(len(ids)) for name, counter in counters.items()}, share=False)
    selection = measure_selection(index, retrieval.questions, selectors, model)
    differences = differences_of([selection], selectors[0], seed)[SELECTION] if selection is not None else {}
    return SelectorReport(retrieval, calls, selection, differences)


class CallCounter:
    """A retriever that remembers the model calls of each of its questions."""

    def __init__(self, retrieve: Retrieve) -> None:
        self._retrieve = retrieve
        self._calls: list[float] = []

    def __call__(self, question: str) -> Evidence:
        evidence = self._retrieve(question)
        self._calls.append(float(evidence.trace.model_calls))
        return evidence

    def of_last(self, count: int) -> tuple[float, ...]:
        """The calls of the last `count` questions."""
        return tuple(self._calls[-count:])


def measure_selection(
    index: Index, questions: Sequence[Question], selectors: Sequence[str], model: LanguageModel | None
) -> Measure | None:
    """The average precision of each selector's choice among the same candidates; None where no question has gold among them."""
    asked: list[Question] = []
    values: dict[str, list[float]] = {name: [] for name in selectors}
    quoted = [question for question in questions if question.evidence]
    for question in track(quoted, "selection: questions", len(quoted)):
        vector_D = index.encode_queries([question.text])[0]
        rows = offered(index, Query(question.text, vector_D))
        gold = np.intersect1d(gold_rows(index, question)[0], rows)
        if len(gold) == 0:
            continue
        asked.append(question)
        for name in selectors:
            query = Query(question.text, vector_D, Caller(model) if model is not None and name == "llm" else None)
            chosen = find_selector(name, query)(index, query, rows)
            values[name].append(average_precision(np.isin(chosen, gold).tolist(), len(gold)))
    if not asked:
        return None
    found = {name: tuple(each) for name, each in values.items()}
    return Measure(SELECTION, tuple(question.id for question in asked), found, share=False)


def offered(index: Index, query: Query) -> Ints:
    """The candidates: the propositions that are nearest to the question and stand in a passage that is, as in `local`; best first."""
    near_P = score_passages(index, query.vector_D)
    near_N = score_propositions(index, near_P, query.vector_D)
    return top_rows(worth_of_propositions(index, near_N, own_scores(index, near_P, near_N, [])), OFFERED)


def average_precision(relevant: Sequence[bool], wanted: int) -> float:
    """Σ over relevant places k of precision at k, divided by the relevant ones there are; what was not selected adds nothing.

    >>> average_precision([True, False, True], 2)
    0.8333333333333333
    >>> average_precision([True], 2)
    0.5
    """
    hits, total = 0, 0.0
    for place, is_relevant in enumerate(relevant, start=1):
        if is_relevant:
            hits += 1
            total += hits / place
    return total / wanted


def compared(report: SelectorReport) -> Measure:
    """The measure that differences are of."""
    return measure_named(report.retrieval.measures, COMPARED)
