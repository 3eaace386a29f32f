"""What float16 and ANN indexes do to retrieval: Recall@5 of modes on an index that is there, against its float32 vectors compared one by one.

Run: python -P benchmarks/experiments/ann.py --data INDEX QUESTIONS [--data …] [--limit N] [--seen N] [--json]. Nothing is written into INDEX. `--seen` is
how many passages `hops` looks at by nearness, and half as many by words, in place of its own numbers, which suit large indexes.
"""

import argparse
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

from benchmarks.report import Check, print_report
from eval.metrics import recall_at
from graph.documents.questions import Question, read_questions
from graph.index.index import Index, open_index
from graph.retrieve.parts import passage_scores
from graph.retrieve.parts.query import Query, RetrieveSettings
from graph.retrieve.parts.ranking import nearest
from graph.retrieve.retrieve import STRATEGIES
from graph.shared.modes import Mode
from graph.store.data import VECTOR_FIELDS, IndexData
from graph.store.vector_files import save_vectors, with_ann
from graph.store.vectors import Vectors
from graph.types import Floats

MODES: tuple[Mode, ...] = ("hops", "hybrid", "dense", "naive")
KINDS = ("passages", "propositions")
HALVES_LOSS, ANN_LOSS, LEAST_RECALL = 0.003, 0.005, 0.98


def stored_as(folder: Path, data: IndexData, dtype: str, ann_rows: int) -> IndexData:
    """The data with its vectors written anew into `folder`, as `dtype`, with ANN indexes from `ann_rows` on."""
    changed = {}
    for _, field in VECTOR_FIELDS.values():
        vectors: Vectors = getattr(data, field)
        ids = vectors.ids(np.arange(len(vectors))).astype(str).tolist()
        written = save_vectors(folder, field, Vectors.of(np.asarray(vectors).astype(dtype), ids), 8)
        changed[field] = with_ann(folder, written, ann_rows, 8)
    return replace(data, **changed)


def recalls(index: Index, questions: Sequence[Question], vectors_QD: Floats) -> dict[str, float]:
    """Recall@5 and median milliseconds of the processor of every mode."""
    figures = {}
    for mode in MODES:
        ask, found, times = partial(STRATEGIES[mode], index, settings=RetrieveSettings(mode=mode, top_k=10)), [], []
        for question, vector_D in zip(questions, vectors_QD, strict=True):
            started = thread_time()
            evidence = ask(Query(question.text, vector_D))
            times.append(1000 * (thread_time() - started))
            ranked = list(dict.fromkeys(each.item.source for each in evidence.passages))
            found.append(recall_at(ranked, question.gold_sources, 5))
        figures |= {f"{mode}: Recall@5": float(np.mean(found)), f"{mode}: ms": median(times)}
    return figures


def agreement(index: Index, exact: Index, vectors_QD: Floats) -> dict[str, float]:
    """How many of the ten nearest to a question are found, by kind."""
    found = {}
    for kind in KINDS:
        ours, theirs = (getattr(each.data, VECTOR_FIELDS[kind][1]) for each in (index, exact))
        same = [len(np.intersect1d(nearest(ours, q, 10)[0], nearest(theirs, q, 10)[0])) / 10 for q in vectors_QD]
        found[f"{kind}: recall@10 of questions"] = float(np.mean(same))
    return found


def measure(folder: Path, file: Path, limit: int | None) -> tuple[dict[str, float], list[Check]]:
    index = open_index(folder)
    questions = [each for each in read_questions(file) if each.gold_sources][:limit]
    vectors_QD = index.encode_queries([question.text for question in questions])
    name = file.parent.name
    exact = recalls(index, questions, vectors_QD)
    figures = {f"{name}: {key}": value for key, value in exact.items()}
    figures |= {f"{name}: passages": len(index.data.passage_ids), f"{name}: questions": len(questions)}
    checks = []
    for told, dtype, ann_rows, loss in (
        ("float16", "float16", sys.maxsize, HALVES_LOSS),
        ("ANN", "float32", 1, ANN_LOSS),
        ("ANN of float16", "float16", 1, ANN_LOSS),
    ):
        with tempfile.TemporaryDirectory() as place:
            other = replace(index, data=stored_as(Path(place), index.data, dtype, ann_rows))
            found = recalls(other, questions, vectors_QD)
            if ann_rows == 1:
                of_passages = other.data.passage_vectors_PD.segments[0].ann
                assert of_passages is not None
                figures[f"{name}: {told}: lists looked through for passages"] = of_passages.probes
                same = agreement(other, index, vectors_QD)
                checks += [Check(f"{name}: {told}: {key}", value, LEAST_RECALL, True) for key, value in same.items()]
        figures |= {f"{name}: {told}: {key}": value for key, value in found.items()}
        for mode in MODES:
            key = f"{mode}: Recall@5"
            checks.append(Check(f"{name}: {told}: {key}, lost", abs(exact[key] - found[key]), loss, False))
    return figures, checks


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, nargs=2, action="append", required=True)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--seen", type=int)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.seen:
        passage_scores.NEAREST_SEEN, passage_scores.WORDED_SEEN = arguments.seen, arguments.seen // 2
    figures: dict[str, float | str] = {}
    checks: list[Check] = []
    for folder, file in arguments.data:
        more, held = measure(folder, file, arguments.limit)
        figures |= more
        checks += held
    return print_report("ann", figures, checks, arguments.json)


if __name__ == "__main__":
    raise SystemExit(main())
