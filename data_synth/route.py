"""Which retrieval mode answers which question best for its cost: rows for training a router, made by `modegraph synth route`.

All modes run over all questions first, since the cost of a mode is its median over them; then each question gets its row."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, get_args

from data_synth.relevance.relevance_form import FEATURE_DIGITS, GoldQuestion, not_finite
from data_synth.relevance.split import split_questions
from data_synth.rows import Dropped, Form
from graph.documents.questions import SPLITS
from graph.errors import UserError
from graph.retrieve.learned.router import QUERY_FEATURES, query_features
from graph.retrieve.parts.query import Query, RetrieveSettings
from graph.retrieve.retrieve import retrieve_many
from graph.shared.modes import Mode
from graph.types import Evidence, Floats, LanguageModel

if TYPE_CHECKING:
    import pyarrow as pa

    from graph.documents.questions import Question
    from graph.index.index import Index


@dataclass(frozen=True)
class ModeRun:
    """One mode on one question: Recall@5 of its gold documents, milliseconds without the encoder, tokens of a model."""

    recall_at_5: float
    milliseconds: float
    tokens: int


@dataclass(frozen=True)
class RouteRow:
    """One question: what every mode did for it, and the cheapest mode within the tolerance of the best.

    `features` are in the order of QUERY_FEATURES; making them took `features_ms` milliseconds.
    """

    id: str
    question: str
    kind: str
    split: str
    best_mode: str
    runs: Mapping[str, ModeRun]
    features: tuple[float, ...]
    features_ms: float


def route_to_json(row: RouteRow) -> dict[str, Any]:
    """A row as a file holds it; modes that were not run are missing from `runs`."""
    return {
        "id": row.id,
        "question": row.question,
        "kind": row.kind,
        "split": row.split,
        "best_mode": row.best_mode,
        "runs": {mode: asdict(run) for mode, run in row.runs.items()},
        "query_features": dict(zip(QUERY_FEATURES, row.features, strict=True)),
        "features_ms": row.features_ms,
    }


def route_from_json(row: Mapping[str, Any]) -> RouteRow:
    """The inverse of `route_to_json`; KeyError for a missing key or feature, TypeError or ValueError for a malformed value."""
    return RouteRow(
        id=row["id"],
        question=row["question"],
        kind=row["kind"],
        split=row["split"],
        best_mode=row["best_mode"],
        runs={mode: ModeRun(**run) for mode, run in row["runs"].items() if run is not None},
        features=tuple(float(row["query_features"][name]) for name in QUERY_FEATURES),
        features_ms=float(row["features_ms"]),
    )


def route_schema() -> pa.Schema:
    """The columns of `route_to_json`, typed; every mode has its column in `runs`, null where it was not run."""
    import pyarrow as pa

    text = pa.string()
    run = pa.struct([("recall_at_5", pa.float32()), ("milliseconds", pa.float32()), ("tokens", pa.int64())])
    texts = [(name, text) for name in ("id", "question", "kind", "split", "best_mode")]
    features = pa.struct([(name, pa.float32()) for name in QUERY_FEATURES])
    runs = pa.struct([(mode, run) for mode in get_args(Mode)])
    return pa.schema([*texts, ("runs", runs), ("query_features", features), ("features_ms", pa.float32())])


def route_problems(row: RouteRow) -> list[str]:
    """What keeps a row from being learned from, in words; none for a good one."""
    problems = []
    if not row.question.strip():
        problems.append("the question is empty")
    if row.split not in SPLITS:
        problems.append(f"split is {row.split!r}, expected one of {', '.join(SPLITS)}")
    if len(row.runs) < 2:
        problems.append(f"runs of {len(row.runs)} modes; there is nothing to choose between")
    if row.best_mode not in row.runs:
        problems.append(f"best_mode {row.best_mode!r} is none of the modes run: {', '.join(row.runs)}")
    for mode, run in row.runs.items():
        if mode not in get_args(Mode):
            problems.append(f"mode {mode!r} is none of this version")
        if not 0 <= run.recall_at_5 <= 1:
            problems.append(f"recall_at_5 of {mode} is {run.recall_at_5}, expected 0 to 1")
        if not 0 <= run.milliseconds < float("inf") or run.tokens < 0:
            problems.append(f"{mode} took {run.milliseconds} ms and {run.tokens} tokens, expected 0 or more")
    if not 0 <= row.features_ms < float("inf"):
        problems.append(f"features_ms is {row.features_ms}, expected 0 or more")
    return problems + not_finite(QUERY_FEATURES, row.features)


ROUTE: Form[RouteRow] = Form(
    name="route",
    title="Which retrieval mode for which question",
    about=(
        "For every question, Recall@5 of its gold documents, milliseconds and model tokens of each mode, and `best_mode`: of the modes "
        "within the tolerance of the question's best recall, the cheapest. Cheap is what asks a model for fewer tokens over all "
        "questions, and of equals what has the lower median of milliseconds. `query_features` are what a router can know before it "
        "chooses, and `features_ms` how long making them takes. Questions with a common gold document are in one split."
    ),
    to_json=route_to_json,
    from_json=route_from_json,
    schema=route_schema,
    problems=route_problems,
    counts=lambda row: {
        "best mode": row.best_mode,
        "best Recall@5": f"{max(run.recall_at_5 for run in row.runs.values()):.2f}",
        "kind of question": row.kind or "unspecified",
    },
    lengths=lambda row: {"question": len(row.question.split())},
    texts=lambda row: (row.question,),
)


DEPTH = 5
PASSAGES = 10
"""Asked for, so that DEPTH documents are among them even where one document has several passages."""
DIGITS = 3

Runs = Mapping[str, ModeRun]
"""One question's runs, by mode."""
Track = Callable[[Iterable[str], str, int], Iterable[str]]
"""Texts, a word for what is done to them and their number, to the same texts while progress is shown."""


def parse_modes(named: Sequence[str]) -> list[Mode]:
    """The modes named; UserError for an unknown one, one that is named twice, and for fewer than two."""
    known = {str(mode): mode for mode in get_args(Mode)}
    given = f"--modes {' '.join(named)}"
    for word in named:
        if word not in known:
            raise UserError(f"{given}: {word!r}", f"some of {', '.join(known)}", "fix the option")
    if len(named) < 2 or len(set(named)) < len(named):
        raise UserError(given, "two or more different modes", "name them, divided by spaces")
    return [known[word] for word in named]


def run_modes(
    index: Index, questions: Sequence[Question], modes: Sequence[Mode], model: LanguageModel | None, shown: Track
) -> list[Runs]:
    """Every mode on every question, in order. UserError when the model goes away: half a retrieval has no fair figures.

    Each mode answers the first question once before its time is taken, so that no question pays for what is kept after it.
    """
    runs: list[dict[str, ModeRun]] = [{} for _ in questions]
    texts = [question.text for question in questions]
    for mode in modes:
        settings = RetrieveSettings.model_validate({"mode": mode, "top_k": PASSAGES})
        retrieve_many(index, texts[:1], settings)
        for place, text in enumerate(shown(texts, f"{mode}: questions", len(texts))):
            found = retrieve_many(index, [text], settings, model)[0]
            runs[place][mode] = measure_run(found, questions[place])
    return list(runs)


def measure_run(evidence: Evidence, question: Question) -> ModeRun:
    """Recall at DEPTH documents, milliseconds without the encoder, and the tokens of all calls of a model."""
    trace = evidence.trace
    if trace.untimed_calls:
        found = f"question {question.id!r}, mode {trace.mode}: {trace.untimed_calls} calls from a ledger without times"
        raise UserError(found, "calls whose time is known: a mode's cost is learned", "remove the ledger in --out")
    if trace.stopped:
        found = f"question {question.id!r}, mode {trace.mode}: stopped before it was done ({trace.stopped})"
        raise UserError(found, "a model that answers to the end", "run again: finished calls are kept")
    ranked = list(dict.fromkeys(scored.item.source for scored in evidence.passages))[:DEPTH]
    gold = set(question.gold_sources)
    return ModeRun(
        recall_at_5=round(len(gold & set(ranked)) / len(gold), DIGITS),
        milliseconds=round(1000 * trace.seconds, DIGITS),
        tokens=trace.prompt_tokens + trace.completion_tokens,
    )


def by_cost(runs: Sequence[Runs]) -> list[str]:
    """The modes from cheap to dear: by tokens over all questions, then by the median of milliseconds, then by name.

    Medians, because which of two modes is dearer should not hang on what else the machine did during one question.
    """
    tokens = {mode: sum(each[mode].tokens for each in runs) for mode in runs[0]}
    typical = {mode: median(each[mode].milliseconds for each in runs) for mode in runs[0]}
    return sorted(runs[0], key=lambda mode: (tokens[mode], typical[mode], mode))


def best_mode(runs: Runs, cheap_first: Sequence[str], tolerance: float) -> str:
    """The cheapest mode whose recall is at most `tolerance` below the best.

    >>> runs = {"dense": ModeRun(0.5, 1, 0), "hops": ModeRun(1.0, 8, 0), "paths": ModeRun(1.0, 19, 0)}
    >>> best_mode(runs, ["dense", "hops", "paths"], 0.01), best_mode(runs, ["dense", "hops", "paths"], 0.5)
    ('hops', 'dense')
    """
    least = max(run.recall_at_5 for run in runs.values()) - tolerance
    return next(mode for mode in cheap_first if runs[mode].recall_at_5 >= least)


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
