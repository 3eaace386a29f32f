"""The nouns of route data: what a mode did for a question, and the row that tells which mode is the cheapest good one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, get_args

from data_synth.forms import Form
from data_synth.relevance.types import not_finite
from graph.documents.questions import SPLITS
from graph.retrieve.learned.query_features import QUERY_FEATURES
from graph.shared.modes import Mode

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Run:
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
    runs: Mapping[str, Run]
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
        runs={mode: Run(**run) for mode, run in row["runs"].items() if run is not None},
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


FORM: Form[RouteRow] = Form(
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
