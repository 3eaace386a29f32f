"""`modegraph eval retrieval`: how well each mode ranks the documents that hold an answer, and how long it takes.

The ranking of a question is the unique document sources in the order of `Evidence.passages`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eval.compare.measures import differences_of
from eval.comparison import Measure
from eval.metrics.ranking import all_gold_at, ndcg_at, recall_at, reciprocal_rank
from eval.plots import draw_retrieval
from eval.statistics import Interval
from eval.tables import Table, figure, interval_text
from graph.documents.questions import SPLITS, Question, check_gold
from graph.errors import UserError
from graph.shared.console import say, track
from graph.shared.jsonl import write_json, write_jsonl
from graph.types import Evidence


def replayed_note(count: int) -> str:
    """A note on calls replayed from a ledger, "" if there are none."""
    return (
        f"{count:,} model calls were answered from the ledger; their cost is that of the original calls."
        if count
        else ""
    )


def untimed_note(count: int) -> str:
    """A note on replayed calls without a recorded time, "" if there are none."""
    text = f"{count:,} calls were answered from a ledger without their times, so the seconds are too low"
    return f"{text}; remove the ledger to have them timed." if count else ""


Retrieve = Callable[[str], Evidence]
OfRanking = Callable[[Sequence[str], Sequence[str]], float]
MAIN_MEASURE = "Recall@5"
LEDGER = "ledger.sqlite"
SECONDS = "s/query without encoder"
MEASURES: tuple[tuple[str, OfRanking], ...] = (
    ("Recall@2", lambda ranked, gold: recall_at(ranked, gold, 2)),
    (MAIN_MEASURE, lambda ranked, gold: recall_at(ranked, gold, 5)),
    ("Recall@10", lambda ranked, gold: recall_at(ranked, gold, 10)),
    ("all gold@5", lambda ranked, gold: all_gold_at(ranked, gold, 5)),
    ("MRR", reciprocal_rank),
    ("nDCG@10", lambda ranked, gold: ndcg_at(ranked, gold, 10)),
)


@dataclass(frozen=True)
class Ranking:
    """One question's ranked sources, the seconds of its retrieval without the encoder and of the encoder alone, and its model tokens.

    `replayed` calls came from a ledger and count with their original tokens and time; the time of the `untimed` ones is unknown.
    """

    question_id: str
    sources: tuple[str, ...]
    seconds: float
    encoder_seconds: float
    tokens: int
    replayed: int = 0
    untimed: int = 0


@dataclass(frozen=True)
class RetrievalReport:
    """Modes side by side over the same questions; `differences` are in Recall@5, every mode minus the first."""

    questions: tuple[Question, ...]
    rankings: Mapping[str, tuple[Ranking, ...]]
    measures: tuple[Measure, ...]
    differences: Mapping[str, Interval]
    skipped: int
    top_k: int


def evaluate_retrieval(
    questions: Sequence[Question], retrievers: Mapping[str, Retrieve], top_k: int, seed: int
) -> RetrievalReport:
    """Run every retriever (by mode, the first is the baseline) on every question with gold sources; UserError if there are none.

    Each mode answers one question before the clock starts, so that loading the encoder is not timed.
    """
    with_gold = tuple(question for question in questions if question.gold_sources)
    if not with_gold:
        raise UserError(
            f"none of {len(questions):,} questions has gold_ids", "questions with gold documents", "add them"
        )
    rankings: dict[str, tuple[Ranking, ...]] = {}
    for mode, retrieve in retrievers.items():
        retrieve(with_gold[0].text)
        rankings[mode] = tuple(
            rank_sources(question, retrieve) for question in track(with_gold, f"{mode}: questions", len(with_gold))
        )
    measures = measures_of(with_gold, rankings)
    main_measure = measure_named(measures, MAIN_MEASURE)
    differences = differences_of([main_measure], next(iter(retrievers)), seed)[MAIN_MEASURE]
    return RetrievalReport(with_gold, rankings, measures, differences, len(questions) - len(with_gold), top_k)


def select_questions(questions: Sequence[Question], split: str | None, sources: Collection[str]) -> list[Question]:
    """The questions of `split` (None: all). UserError if there are none, and for gold documents that are not in `sources`."""
    chosen = [question for question in questions if split in (None, question.split)]
    if not chosen:
        raise UserError(f"--split {split}: no such questions", f"one of {', '.join(SPLITS)}", "change the split")
    check_gold(chosen, sources)
    return chosen


def reachable_questions(questions: Sequence[Question], sources: Collection[str]) -> list[Question]:
    """The questions whose gold documents are all among `sources`, those that a filter admits; UserError if there are none."""
    allowed = set(sources)
    reachable = [question for question in questions if allowed.issuperset(question.gold_sources)]
    if not reachable:
        raise UserError(
            f"--where: for none of {len(questions)} questions do all gold documents meet the filter",
            "at least one",
            "loosen the filter",
        )
    if len(reachable) < len(questions):
        say(f"{len(questions) - len(reachable):,} questions are left out: the filter excludes their gold documents")
    return reachable


def rank_sources(question: Question, retrieve: Retrieve) -> Ranking:
    """Retrieve for one question. UserError when the model became unavailable: figures of half a retrieval would mislead."""
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
        tokens=trace.prompt_tokens + trace.completion_tokens,
        replayed=trace.replayed_calls,
        untimed=trace.untimed_calls,
    )


def ranked_sources(evidence: Evidence) -> tuple[str, ...]:
    """The unique document sources, in the order of the ranked passages."""
    return tuple(dict.fromkeys(scored.item.source for scored in evidence.passages))


def measures_of(questions: Sequence[Question], rankings: Mapping[str, Sequence[Ranking]]) -> tuple[Measure, ...]:
    """The ranking measures, seconds and model tokens (prompt and completion) a query, one value for each question and mode."""
    ids = tuple(question.id for question in questions)
    quality = [
        Measure(
            name,
            ids,
            {
                mode: tuple(of(r.sources, q.gold_sources) for r, q in zip(ranked, questions, strict=True))
                for mode, ranked in rankings.items()
            },
            share=False,
        )
        for name, of in MEASURES
    ]
    without_encoder = {mode: tuple(r.seconds for r in ranked) for mode, ranked in rankings.items()}
    total = {mode: tuple(r.seconds + r.encoder_seconds for r in ranked) for mode, ranked in rankings.items()}
    tokens = {mode: tuple(float(r.tokens) for r in ranked) for mode, ranked in rankings.items()}
    costs = [(SECONDS, without_encoder), ("s/query", total), ("tokens/query", tokens)]
    return (*quality, *(Measure(name, ids, values, share=False) for name, values in costs))


def retrieval_table(report: RetrievalReport) -> Table:
    """One row per mode."""
    first = next(iter(report.rankings))
    rows = []
    for mode in report.rankings:
        means = [figure(measure.mean(mode), measure.share) for measure in report.measures]
        rows.append((mode, *means, interval_text(report.differences[mode], 1) if mode != first else ""))
    header = ("mode", *(measure.name for measure in report.measures), f"{MAIN_MEASURE} minus {first}")
    note = (
        f"{len(report.questions)} questions with gold documents ({report.skipped} without were left out); documents in "
        f"the order of the {report.top_k} passages retrieved. Brackets: 95 % interval of a paired bootstrap over "
        "questions, widened by Holm's steps where several are compared; * leaves out 0."
    )
    note = " ".join(filter(None, [note, replay_summary(report)]))
    return Table("Retrieval", header, tuple(rows), note)


def replay_summary(report: RetrievalReport) -> str:
    """Notes on the calls that a ledger answered; "" if there are none."""
    rankings = [ranking for mode_rankings in report.rankings.values() for ranking in mode_rankings]
    replayed, untimed = sum(ranking.replayed for ranking in rankings), sum(ranking.untimed for ranking in rankings)
    return " ".join(filter(None, [replayed_note(replayed), untimed_note(untimed)]))


def retrieval_json(report: RetrievalReport) -> dict[str, Any]:
    """Means and intervals by mode."""
    return {
        "questions": len(report.questions),
        "skipped_without_gold": report.skipped,
        "top_k": report.top_k,
        "modes": {mode: {measure.name: measure.mean(mode) for measure in report.measures} for mode in report.rankings},
        "replayed_calls": {
            mode: sum(ranking.replayed for ranking in rankings) for mode, rankings in report.rankings.items()
        },
        "untimed_calls": {
            mode: sum(ranking.untimed for ranking in rankings) for mode, rankings in report.rankings.items()
        },
        "differences_from": next(iter(report.rankings)),
        f"{MAIN_MEASURE} differences": {mode: asdict(interval) for mode, interval in report.differences.items()},
    }


def write_retrieval(report: RetrievalReport, out: Path) -> None:
    """Write retrieval.json, the plot, and rankings.jsonl with the ranked and gold sources of every question and mode into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    gold = {question.id: list(question.gold_sources) for question in report.questions}
    rows = (
        {"mode": mode, **asdict(ranking), "gold": gold[ranking.question_id]}
        for mode, ranked in report.rankings.items()
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
