"""The effect of float16 and ANN indexes on retrieval: Recall@5 of modes on an existing index, compared with exact search in float32 vectors.

Run: python -P benchmarks/experiments/ann.py --data INDEX QUESTIONS [--data …] [--limit N] [--candidates N] [--json]. Nothing is written into INDEX.
With `--candidates N`, `hops` examines N passages by similarity and N / 2 by words, instead of its defaults, which suit large indexes.
"""

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from time import thread_time

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import numpy as np

from benchmarks.report import Check, new_parser, print_report
from eval.metrics.grounding import recall_at
from eval.retrieval import ranked_sources
from graph.documents.questions import Question, read_questions
from graph.index.index import Index, open_index
from graph.retrieve.parts import passage_scores
from graph.retrieve.parts.query import Query, RetrieveSettings
from graph.retrieve.parts.ranking import nearest
from graph.retrieve.retrieve import STRATEGIES
from graph.shared.modes import Mode
from graph.store.arrays import save_vectors, with_ann
from graph.store.data import VECTOR_FIELDS, IndexData
from graph.store.vectors import Vectors
from graph.types import Floats

MODES: tuple[Mode, ...] = ("hops", "hybrid", "dense", "naive")
KINDS = ("passages", "propositions")
FLOAT16_LOSS, ANN_LOSS, MIN_RECALL = 0.003, 0.005, 0.98
"""The largest allowed change of Recall@5 with float16 and with ANN, and the smallest allowed recall of the ten exact nearest neighbours."""


def rewrite_vectors(folder: Path, data: IndexData, dtype: str, ann_rows: int) -> IndexData:
    """The data with its vectors rewritten to `folder` as `dtype`, and with ANN indexes for tables of at least `ann_rows` rows."""
    changed = {}
    for _, field in VECTOR_FIELDS.values():
        vectors: Vectors = getattr(data, field)
        ids = vectors.ids(np.arange(len(vectors))).astype(str).tolist()
        saved = save_vectors(folder, field, Vectors.of(np.asarray(vectors).astype(dtype), ids), 8)
        changed[field] = with_ann(folder, saved, ann_rows, 8)
    return replace(data, **changed)


def recalls(index: Index, questions: Sequence[Question], vectors_QD: Floats) -> dict[str, float]:
    """Recall@5 of every mode, and the median processor time of a query in milliseconds."""
    figures = {}
    for mode in MODES:
        ask = partial(STRATEGIES[mode], index, settings=RetrieveSettings(mode=mode, top_k=10))
        mode_recalls, times = [], []
        for question, vector_D in zip(questions, vectors_QD, strict=True):
            started = thread_time()
            evidence = ask(Query(question.text, vector_D))
            times.append(1000 * (thread_time() - started))
            mode_recalls.append(recall_at(ranked_sources(evidence), question.gold_sources, 5))
        figures |= {f"{mode}: Recall@5": float(np.mean(mode_recalls)), f"{mode}: ms": median(times)}
    return figures


def neighbour_recall(index: Index, exact: Index, vectors_QD: Floats) -> dict[str, float]:
    """The mean share of a question's ten exact nearest neighbours that `index` finds, for passages and for propositions."""
    recalls_by_kind = {}
    for kind in KINDS:
        ours, theirs = (getattr(item.data, VECTOR_FIELDS[kind][1]) for item in (index, exact))
        same = [len(np.intersect1d(nearest(ours, q, 10)[0], nearest(theirs, q, 10)[0])) / 10 for q in vectors_QD]
        recalls_by_kind[f"{kind}: recall of the 10 nearest"] = float(np.mean(same))
    return recalls_by_kind


def measure(folder: Path, file: Path, limit: int | None) -> tuple[dict[str, float], list[Check]]:
    index = open_index(folder)
    questions = [question for question in read_questions(file) if question.gold_sources][:limit]
    vectors_QD = index.encode_queries([question.text for question in questions])
    name = file.parent.name
    exact = recalls(index, questions, vectors_QD)
    figures = {f"{name}: {key}": value for key, value in exact.items()}
    figures |= {f"{name}: passages": len(index.data.passage_ids), f"{name}: questions": len(questions)}
    checks = []
    for variant, dtype, ann_rows, loss in (
        ("float16", "float16", sys.maxsize, FLOAT16_LOSS),
        ("ANN", "float32", 1, ANN_LOSS),
        ("ANN on float16", "float16", 1, ANN_LOSS),
    ):
        with tempfile.TemporaryDirectory() as scratch:
            other = replace(index, data=rewrite_vectors(Path(scratch), index.data, dtype, ann_rows))
            mode_figures = recalls(other, questions, vectors_QD)
            if ann_rows == 1:
                passage_ann = other.data.passage_vectors_PD.segments[0].ann
                assert passage_ann is not None, f"{name}: expected an ANN index for passages"
                figures[f"{name}: {variant}: lists probed for passages"] = passage_ann.probes
                same = neighbour_recall(other, index, vectors_QD)
                checks += [Check(f"{name}: {variant}: {key}", value, MIN_RECALL, True) for key, value in same.items()]
        figures |= {f"{name}: {variant}: {key}": value for key, value in mode_figures.items()}
        for mode in MODES:
            key = f"{mode}: Recall@5"
            checks.append(Check(f"{name}: {variant}: {key}, change", abs(exact[key] - mode_figures[key]), loss, False))
    return figures, checks


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--data", type=Path, nargs=2, action="append", required=True)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--candidates", type=int)
    arguments = parser.parse_args()
    if arguments.candidates:
        passage_scores.NEAREST_CANDIDATES, passage_scores.BM25_CANDIDATES = (
            arguments.candidates,
            arguments.candidates // 2,
        )
    figures: dict[str, float | str] = {}
    checks: list[Check] = []
    for folder, file in arguments.data:
        more, more_checks = measure(folder, file, arguments.limit)
        figures |= more
        checks += more_checks
    return print_report("ann", figures, checks, arguments.json)


if __name__ == "__main__":
    raise SystemExit(main())
