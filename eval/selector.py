"""`modegraph eval selector`: one mode with several selectors, and what each selects from the same candidates; its table, JSON and files.

The retrieval figures are those of `eval retrieval`; only the selector `llm` gets a model, so that its cost is the cost of choosing by a model.
The precision of a selection is measured separately, where gold sentences are known, on one list of candidates for all selectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_synth.relevance.gold import CORPUS, read_gold_questions, with_sentences
from data_synth.relevance.relevance_rows import gold_rows
from eval.compare.measures import differences_of
from eval.comparison import Measure
from eval.metrics.ranking import average_precision
from eval.report import markdown_table
from eval.retrieval import MAIN_MEASURE, RetrievalReport, Retrieve, evaluate_retrieval, replay_summary, write_retrieval
from eval.statistics import Interval
from eval.tables import NONE, Table, figure, interval_text
from graph.documents.questions import Question
from graph.index.index import Index
from graph.retrieve.learned.selectors import find_selector
from graph.retrieve.parts.passage_scores import own_scores, score_passages, score_propositions
from graph.retrieve.parts.query import Caller, Query
from graph.retrieve.parts.ranking import top_rows, worth_of_propositions
from graph.shared.console import say, track
from graph.shared.jsonl import write_json
from graph.types import Evidence, Ints, LanguageModel


def read_with_sentences(file: Path) -> list[Question]:
    """The questions; numbered gold sentences become quotes if their corpus is in the folder of the questions file."""
    questions, corpus = read_gold_questions(file), file.parent / CORPUS
    return [question.question for question in (with_sentences(questions, corpus) if corpus.is_file() else questions)]


SELECTION = "AP of the selection"
CALLS = "calls/query"
CANDIDATES = 20
"""Number of candidates for the precision of a selector: as many as `local` shows a model at a time."""


@dataclass(frozen=True)
class SelectorReport:
    """A retrieval report by selector, model calls per query, and the precision of the selection (None: no gold sentences)."""

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
    """Run every selector on every question with gold documents; differences are from the first selector. UserError as in `eval retrieval`."""
    counters = {name: CallCounter(retrieve_with(name)) for name in selectors}
    retrieval = evaluate_retrieval(questions, counters, top_k, seed)
    ids = tuple(question.id for question in retrieval.questions)
    calls = Measure(CALLS, ids, {name: counter.of_last(len(ids)) for name, counter in counters.items()}, share=False)
    selection = measure_selection(index, retrieval.questions, selectors, model)
    differences = differences_of([selection], selectors[0], seed)[SELECTION] if selection is not None else {}
    return SelectorReport(retrieval, calls, selection, differences)


class CallCounter:
    """A retriever that records the model calls of each question."""

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
    """The average precision of each selector's choice among the same candidates; None if no question has gold among them."""
    with_gold: list[Question] = []
    values: dict[str, list[float]] = {name: [] for name in selectors}
    with_quotes = [question for question in questions if question.evidence]
    for question in track(with_quotes, "selection: questions", len(with_quotes)):
        vector_D = index.encode_queries([question.text])[0]
        rows = candidates_of(index, Query(question.text, vector_D))
        gold = np.intersect1d(gold_rows(index, question)[0], rows)
        if len(gold) == 0:
            continue
        with_gold.append(question)
        for name in selectors:
            query = Query(question.text, vector_D, Caller(model) if model is not None and name == "llm" else None)
            chosen = find_selector(name, query)(index, query, rows)
            values[name].append(average_precision(np.isin(chosen, gold).tolist(), len(gold)))
    if not with_gold:
        return None
    precisions = {name: tuple(scores) for name, scores in values.items()}
    return Measure(SELECTION, tuple(question.id for question in with_gold), precisions, share=False)


def candidates_of(index: Index, query: Query) -> Ints:
    """The candidates, best first: as in `local`, the propositions nearest to the question among those in the nearest passages."""
    near_P = score_passages(index, query.vector_D)
    near_N = score_propositions(index, near_P, query.vector_D)
    return top_rows(worth_of_propositions(index, near_N, own_scores(index, near_P, near_N, [])), CANDIDATES)


QUALITY_MEASURES = ("Recall@2", MAIN_MEASURE, "all gold@5")
COST_MEASURES = ("tokens/query", "s/query without encoder")
REPORT, JSON = "selectors.md", "selectors.json"


def shown_measures(report: SelectorReport) -> list[Measure]:
    """Quality first, costs last."""
    by_name = {measure.name: measure for measure in report.retrieval.measures}
    selection = [report.selection] if report.selection is not None else []
    return [
        *(by_name[name] for name in QUALITY_MEASURES),
        *selection,
        report.calls,
        *(by_name[name] for name in COST_MEASURES),
    ]


def selector_table(report: SelectorReport, mode: str) -> Table:
    """One row per selector."""
    measures = shown_measures(report)
    first, *_ = report.retrieval.rankings
    with_selection = report.selection is not None
    rows = []
    for name in report.retrieval.rankings:
        means = [figure(measure.mean(name), measure.share) for measure in measures]
        differences = [report.retrieval.differences, *([report.selection_differences] if with_selection else [])]
        cells = [interval_text(intervals[name], 1) if name != first else NONE for intervals in differences]
        rows.append((name, *means, *cells))
    difference_names = [MAIN_MEASURE, *([SELECTION] if with_selection else [])]
    header = (
        "selector",
        *(measure.name for measure in measures),
        *(f"{name} minus {first}" for name in difference_names),
    )
    return Table(f"Selectors in {mode}", header, tuple(rows), table_note(report))


def table_note(report: SelectorReport) -> str:
    """How to read the table."""
    note = (
        f"{len(report.retrieval.questions)} questions with gold documents; documents in the order of the "
        f"{report.retrieval.top_k} passages retrieved. Only llm has a model. Brackets: 95 % interval of a paired bootstrap over "
        "questions, widened by Holm's steps where several are compared; * leaves out 0."
    )
    note = " ".join(filter(None, [note, replay_summary(report.retrieval)]))
    if report.selection is None:
        return note
    return note + (
        f" {SELECTION}: average precision of the selected propositions, in their order, among the same {CANDIDATES}; over "
        f"{len(report.selection.clusters)} questions with a gold sentence among these."
    )


def selector_json(report: SelectorReport, mode: str) -> dict[str, Any]:
    """Means by selector, and intervals of the differences from the first."""
    first, *_ = report.retrieval.rankings
    measures = shown_measures(report)
    return {
        "mode": mode,
        "questions": len(report.retrieval.questions),
        "questions_with_gold_sentences": len(report.selection.clusters) if report.selection is not None else 0,
        "top_k": report.retrieval.top_k,
        "selectors": {name: {m.name: m.mean(name) for m in measures} for name in report.retrieval.rankings},
        "differences_from": first,
        f"{MAIN_MEASURE} differences": {
            name: asdict(interval) for name, interval in report.retrieval.differences.items()
        },
        f"{SELECTION} differences": {name: asdict(interval) for name, interval in report.selection_differences.items()},
    }


def write_selectors(report: SelectorReport, mode: str, out: Path) -> None:
    """Write selectors.md and selectors.json into `out`, with the files of `eval retrieval`."""
    write_retrieval(report.retrieval, out)
    table = selector_table(report, mode)
    (out / REPORT).write_text(f"# {table.title}\n\n{markdown_table(table)}\n\n{table.note}\n", encoding="utf-8")
    write_json(out / JSON, selector_json(report, mode))
    say(f"wrote {out / REPORT} and {out / JSON}")
