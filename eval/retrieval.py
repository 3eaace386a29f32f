"""`modegraph eval retrieval`: how well each mode, or each selector in one mode, ranks the documents that contain an answer, and at what cost.

The ranking of a question is the unique document sources in the order of `Evidence.passages`. If gold sentences are known, a selector's
choice is also measured separately, on the same list of candidates for all selectors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_synth.relevance.relevance_form import CORPUS, read_gold_questions, with_sentences
from data_synth.relevance.relevance_rows import gold_rows
from eval.compare.measures import differences_of
from eval.comparison import Measure
from eval.metrics.grounding import all_gold_at, average_precision, ndcg_at, recall_at, reciprocal_rank
from eval.plots import draw_retrieval
from eval.statistics import Interval
from eval.tables import Table, figure, interval_text
from graph.config import parse_settings
from graph.documents.questions import SPLITS, Question, check_gold
from graph.errors import UserError
from graph.index.index import Index
from graph.retrieve.learned.selectors import find_selector
from graph.retrieve.parts.passage_scores import score_passages, score_propositions, with_best_proposition
from graph.retrieve.parts.query import Caller, Query, RetrieveSettings
from graph.retrieve.parts.ranking import top_rows, worth_of_propositions
from graph.retrieve.retrieve import retrieve_many
from graph.shared.console import say, track
from graph.shared.jsonl import write_json, write_jsonl
from graph.types import Evidence, Ints, LanguageModel


def replayed_note(count: int) -> str:
    """A note on calls replayed from a ledger, "" if there are none."""
    text = "model calls were answered from the ledger; their cost is that of the original calls."
    return f"{count:,} {text}" if count else ""


Retrieve = Callable[[str], Evidence]
MAIN_MEASURE = "Recall@5"
LEDGER = "ledger.sqlite"
SECONDS = "s/query without encoder"
SELECTION = "AP of the selection"
CANDIDATES = 20
"""Number of candidates for the precision of a selector: as many as the mode `local` shows a model first."""


@dataclass(frozen=True)
class Ranking:
    """One question's ranked sources, the seconds of its retrieval without the encoder and of the encoder alone, and its model calls and tokens.

    `replayed` calls came from a ledger and count with their original tokens and time.
    """

    question_id: str
    sources: tuple[str, ...]
    seconds: float
    encoder_seconds: float
    calls: int
    tokens: int
    replayed: int


MEASURES: tuple[tuple[str, Callable[[Ranking, Sequence[str]], float]], ...] = (
    ("Recall@2", lambda ranking, gold: recall_at(ranking.sources, gold, 2)),
    (MAIN_MEASURE, lambda ranking, gold: recall_at(ranking.sources, gold, 5)),
    ("Recall@10", lambda ranking, gold: recall_at(ranking.sources, gold, 10)),
    ("all gold@5", lambda ranking, gold: all_gold_at(ranking.sources, gold, 5)),
    ("MRR", lambda ranking, gold: reciprocal_rank(ranking.sources, gold)),
    ("nDCG@10", lambda ranking, gold: ndcg_at(ranking.sources, gold, 10)),
    (SECONDS, lambda ranking, _: ranking.seconds),
    ("s/query", lambda ranking, _: ranking.seconds + ranking.encoder_seconds),
    ("calls/query", lambda ranking, _: ranking.calls),
    ("tokens/query", lambda ranking, _: ranking.tokens),
)
"""Quality of a ranking, given the gold sources, and the cost of its query."""


@dataclass(frozen=True)
class RetrievalReport:
    """Systems (modes, or selectors) side by side on the same questions; `differences` are in Recall@5, every system minus the first.

    `selection` is the precision of each selector's choice; None if it was not measured, or no gold sentence is among the candidates.
    """

    questions: tuple[Question, ...]
    rankings: Mapping[str, tuple[Ranking, ...]]
    measures: tuple[Measure, ...]
    differences: Mapping[str, Interval]
    skipped: int
    top_k: int
    selection: Measure | None = None

    @property
    def shown(self) -> list[Measure]:
        """The measures to print: quality first."""
        return [*([self.selection] if self.selection is not None else []), *self.measures]


def evaluate_retrieval(
    questions: Sequence[Question], retrievers: Mapping[str, Retrieve], top_k: int, seed: int
) -> RetrievalReport:
    """Run every retriever (keyed by system; the first is the baseline) on every question with gold sources; UserError if no question has any."""
    with_gold = tuple(question for question in questions if question.gold_sources)
    if not with_gold:
        found = f"none of {len(questions):,} questions has gold_ids"
        raise UserError(found, "questions with gold documents", "add gold_ids")
    rankings: dict[str, tuple[Ranking, ...]] = {}
    for system, retrieve in retrievers.items():
        rankings[system] = tuple(
            rank_sources(question, retrieve) for question in track(with_gold, f"{system}: questions", len(with_gold))
        )
    measures = measures_of(with_gold, rankings)
    main_measure = measure_named(measures, MAIN_MEASURE)
    differences = differences_of([main_measure], next(iter(retrievers)), seed)[MAIN_MEASURE]
    return RetrievalReport(with_gold, rankings, measures, differences, len(questions) - len(with_gold), top_k)


def warm_up(index: Index, question: str, settings: RetrieveSettings) -> None:
    """Load the encoder and other models by a retrieval that is not timed. It calls no language model, because a ledger would store the calls."""
    selector = "threshold" if settings.selector == "llm" else settings.selector
    retrieve_many(index, [question], settings.model_copy(update={"selector": selector}))


def systems_of(
    modes: Sequence[str], selectors: Sequence[str], common: Mapping[str, Any]
) -> dict[str, RetrieveSettings]:
    """The settings of each system: named by its selector if there are several (in one mode), else by its mode. UserError for a bad setting."""
    return {
        selector if len(selectors) > 1 else mode: parse_settings(
            RetrieveSettings, {"mode": mode, "selector": selector, **common}, "eval retrieval"
        )
        for mode in modes
        for selector in selectors
    }


def select_questions(questions: Sequence[Question], split: str | None, sources: Collection[str]) -> list[Question]:
    """The questions of `split` (None: all). UserError if there are none, and for gold documents that are not in `sources`."""
    chosen = [question for question in questions if split in (None, question.split)]
    if not chosen:
        raise UserError(f"--split {split}: no such questions", f"one of {', '.join(SPLITS)}", "change the split")
    check_gold(chosen, sources)
    return chosen


def reachable_questions(questions: Sequence[Question], sources: Collection[str]) -> list[Question]:
    """The questions whose gold documents are all among `sources`, the documents that a filter admits; UserError if there are none."""
    allowed = set(sources)
    reachable = [question for question in questions if allowed.issuperset(question.gold_sources)]
    if not reachable:
        found = f"--where: the filter excludes a gold document of each of the {len(questions):,} questions"
        raise UserError(found, "a filter that admits all gold documents of at least one question", "loosen the filter")
    if left_out := len(questions) - len(reachable):
        say(f"{left_out:,} questions are left out: the filter excludes at least one of their gold documents")
    return reachable


def rank_sources(question: Question, retrieve: Retrieve) -> Ranking:
    """Retrieve for one question. UserError if the model became unavailable: the figures of an incomplete retrieval would mislead."""
    evidence = retrieve(question.text)
    trace = evidence.trace
    if trace.stopped:
        found = f"question {question.id!r}, mode {trace.mode}: stopped before it was done ({trace.stopped})"
        raise UserError(found, "a model that stays available", "run again: with --out, finished calls are reused")
    return Ranking(
        question_id=question.id,
        sources=ranked_sources(evidence),
        seconds=trace.seconds,
        encoder_seconds=trace.encoder_seconds,
        calls=trace.model_calls,
        tokens=trace.prompt_tokens + trace.completion_tokens,
        replayed=trace.replayed_calls,
    )


def ranked_sources(evidence: Evidence) -> tuple[str, ...]:
    """The unique document sources, in the order of the ranked passages."""
    return tuple(dict.fromkeys(scored.item.source for scored in evidence.passages))


def measures_of(questions: Sequence[Question], rankings: Mapping[str, Sequence[Ranking]]) -> tuple[Measure, ...]:
    """The ranking measures, seconds, model calls and tokens (prompt and completion) per query, one value for each question and system."""
    ids = tuple(question.id for question in questions)
    measures = []
    for name, of in MEASURES:
        values = {
            system: tuple(of(one, question.gold_sources) for one, question in zip(ranked, questions, strict=True))
            for system, ranked in rankings.items()
        }
        measures.append(Measure(name, ids, values, share=False))
    return tuple(measures)


def read_with_sentences(file: Path) -> list[Question]:
    """The questions; numbered gold sentences become quotes if their corpus is in the folder of the questions file."""
    questions, corpus = read_gold_questions(file), file.parent / CORPUS
    return [question.question for question in (with_sentences(questions, corpus) if corpus.is_file() else questions)]


def measure_selection(
    index: Index, questions: Sequence[Question], selectors: Sequence[str], model: LanguageModel | None
) -> Measure | None:
    """The average precision of each selector's choice among the same candidates; None if no question has a gold proposition among them."""
    with_gold: list[str] = []
    values: dict[str, list[float]] = {name: [] for name in selectors}
    with_quotes = [question for question in questions if question.evidence and question.gold_sources]
    for question in track(with_quotes, "selection: questions", len(with_quotes)):
        vector_D = index.encode_queries([question.text])[0]
        rows = candidates_of(index, Query(question.text, vector_D))
        gold = np.intersect1d(gold_rows(index, question)[0], rows)
        if len(gold) == 0:
            continue
        with_gold.append(question.id)
        for name in selectors:
            query = Query(question.text, vector_D, Caller(model) if model is not None and name == "llm" else None)
            chosen = find_selector(name, query)(index, query, rows)
            values[name].append(average_precision(np.isin(chosen, gold).tolist(), len(gold)))
    precisions = {name: tuple(scores) for name, scores in values.items()}
    return Measure(SELECTION, tuple(with_gold), precisions, share=False) if with_gold else None


def candidates_of(index: Index, query: Query) -> Ints:
    """The candidates of the mode `local` if a question names no document, ranked by the mean of a proposition's similarity and its best passage's score."""
    similarity_P = score_passages(index, query.vector_D)
    similarity_N = score_propositions(index, similarity_P, query.vector_D)
    return top_rows(
        worth_of_propositions(index, similarity_N, with_best_proposition(index, similarity_P, similarity_N)), CANDIDATES
    )


def retrieval_table(report: RetrievalReport) -> Table:
    """One row per system."""
    first = next(iter(report.rankings))
    rows = []
    for system in report.rankings:
        means = [figure(measure.mean(system), measure.share) for measure in report.shown]
        rows.append((system, *means, interval_text(report.differences[system], 1) if system != first else ""))
    header = ("mode or selector", *(measure.name for measure in report.shown), f"{MAIN_MEASURE} minus {first}")
    note = (
        f"{len(report.questions)} questions with gold documents ({report.skipped} without any were left out); documents in "
        f"the order of the {report.top_k} passages retrieved. Brackets: 95 % interval of a paired bootstrap over "
        "questions, widened by Holm's method if several systems are compared; * marks an interval that excludes 0. "
    )
    if report.selection is not None:
        note += (
            f"{SELECTION}: average precision of the selected propositions among the same {CANDIDATES} candidates, over "
            f"{len(report.selection.clusters)} questions with a gold sentence among the candidates; only llm calls a model. "
        )
    replayed = sum(ranking.replayed for rankings in report.rankings.values() for ranking in rankings)
    return Table("Retrieval", header, tuple(rows), f"{note}{replayed_note(replayed)}".rstrip())


def retrieval_json(report: RetrievalReport) -> dict[str, Any]:
    """Means and intervals by system."""
    return {
        "questions": len(report.questions),
        "skipped_without_gold": report.skipped,
        "questions_with_gold_sentences": len(report.selection.clusters) if report.selection is not None else 0,
        "top_k": report.top_k,
        "systems": {name: {measure.name: measure.mean(name) for measure in report.shown} for name in report.rankings},
        "replayed_calls": {
            name: sum(ranking.replayed for ranking in rankings) for name, rankings in report.rankings.items()
        },
        "differences_from": next(iter(report.rankings)),
        f"{MAIN_MEASURE} differences": {name: asdict(interval) for name, interval in report.differences.items()},
    }


def write_retrieval(report: RetrievalReport, out: Path) -> None:
    """Write retrieval.json, the plot, and rankings.jsonl with the ranked and gold sources of every question and system into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    gold = {question.id: list(question.gold_sources) for question in report.questions}
    rows = (
        {"system": system, **asdict(ranking), "gold": gold[ranking.question_id]}
        for system, ranked in report.rankings.items()
        for ranking in ranked
    )
    write_jsonl(out / "rankings.jsonl", rows)
    write_json(out / "retrieval.json", retrieval_json(report))
    plot = out / "retrieval.png"
    draw_retrieval(measure_named(report.measures, SECONDS), measure_named(report.measures, MAIN_MEASURE), plot)
    say(f"wrote {out / 'retrieval.json'}, {plot} and {out / 'rankings.jsonl'}")


def measure_named(measures: Sequence[Measure], name: str) -> Measure:
    """The measure called `name`."""
    return next(measure for measure in measures if measure.name == name)
