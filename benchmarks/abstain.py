"""Abstaining: are questions that an index can answer told from those about things that it does not hold?

Questions of each set on their own index can be answered, the same on the indexes of the other sets ("foreign") cannot. The harder case, apart:
on their own index without the documents that answer them ("missing"). AUROC, shares and calibration (foreign: each on one other index,
so that both kinds are as many). Milliseconds are processor time of judging what was found.
With --fit, the coefficients of graph/retrieve/absence.py instead, from the questions of train and dev of an index of examples/documents.

Run: python -P benchmarks/abstain.py (--index FOLDER --questions FILE.jsonl)... [--most 100] [--figure FILE.png] [--json]
     python -P benchmarks/abstain.py --fit INDEX_OF_EXAMPLES
"""

import argparse
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from benchmarks.report import Check, print_report
from graph.documents.questions import Question, read_questions
from graph.index.filters import Condition
from graph.index.index import Index, open_index
from graph.retrieve.absence import absence, signs
from graph.retrieve.parts.query import Query, RetrieveSettings
from graph.retrieve.retrieve import retrieve_many
from graph.types import Evidence, Floats
from train.shared.calibrate import calibration_error, draw_reliability, reliability

Doubles = NDArray[np.float64]
ABSTRACT = "abstract"
SETTINGS = RetrieveSettings(top_k=5, abstain=1)
THRESHOLDS = (0.5, 0.9)
WANTED, MOST_MS, MOST_LOST = 0.9, 1.0, 0.05
SHARES, DRAWS = (0.1, 0.25, 0.5, 0.75), 3
"""Of the documents of examples/, what is kept for fitting, and how often it is drawn."""


@dataclass(frozen=True)
class Set:
    """An index and questions that it can answer."""

    name: str
    index: Index
    questions: tuple[Question, ...]

    @classmethod
    def read(cls, folder: Path, questions: Path, most: int) -> "Set":
        """At most so many of the questions that have gold documents, drawn with a seed."""
        found = [each for each in read_questions(questions) if each.gold_sources and each.kind != ABSTRACT]
        random.Random(0).shuffle(found)
        return cls(folder.name, open_index(folder), tuple(found[:most]))


def find(index: Index, questions: Sequence[Question]) -> list[Evidence]:
    """What the default mode finds, absence judged."""
    return retrieve_many(index, [each.text for each in questions], SETTINGS)


def probabilities(found: Sequence[Evidence]) -> Doubles:
    """The probability of absence; 0 where it was not judged, as nothing is abstained then."""
    return np.array([each.absence.probability if each.absence is not None else 0.0 for each in found])


def without_gold(index: Index, question: Question) -> Index:
    """The index without the documents that answer the question."""
    return index.only(tuple(Condition("source", "!=", source) for source in question.gold_sources))


def auroc(own_n: Doubles, absent_n: Doubles) -> float:
    """How often a question that cannot be answered gets the higher probability."""
    return float(roc_auc_score([0] * len(own_n) + [1] * len(absent_n), np.concatenate([own_n, absent_n])))


def measure(sets: Sequence[Set], figure: Path | None) -> tuple[dict[str, float | str], list[Check]]:
    """All figures and what they are held to."""
    found = {(asked.name, held.name): find(held.index, asked.questions) for asked in sets for held in sets}
    given = {pair: probabilities(each) for pair, each in found.items()}
    own = {each.name: given[each.name, each.name] for each in sets}
    foreign = {name: np.concatenate([given[pair] for pair in given if pair[0] == name != pair[1]]) for name in own}
    missing = {
        each.name: probabilities([find(without_gold(each.index, asked), [asked])[0] for asked in each.questions])
        for each in sets
    }
    figures: dict[str, float | str] = {}
    for name, own_n in own.items():
        figures[f"{name}: questions"] = len(own_n)
        figures[f"{name}: AUROC, foreign"] = auroc(own_n, foreign[name])
        figures[f"{name}: AUROC, missing"] = auroc(own_n, missing[name])
        for kind, values in (("own", own_n), ("foreign", foreign[name]), ("missing", missing[name])):
            figures |= {f"{name}: abstained at {at}, {kind}": float((values >= at).mean()) for at in THRESHOLDS}
    figures |= {
        f"{asked} on {held}: AUROC": auroc(own[asked], given[asked, held]) for asked, held in given if asked != held
    }
    every = {
        kind: np.concatenate(list(of.values()))
        for kind, of in (("own", own), ("foreign", foreign), ("missing", missing))
    }
    for kind in ("foreign", "missing"):
        figures[f"all: AUROC, {kind}"] = auroc(every["own"], every[kind])
    for kind, values in every.items():
        figures |= {f"all: abstained at {at}, {kind}": float((values >= at).mean()) for at in THRESHOLDS}
    figures |= calibration(every["own"], ring(sets, given), "foreign", figure)
    figures |= calibration(every["own"], every["missing"], "missing", None)
    figures["milliseconds"] = judging_ms(sets, found)
    lowest = min(auroc(own[name], foreign[name]) for name in own)
    checks = [
        Check("AUROC of all, foreign", float(figures["all: AUROC, foreign"]), WANTED, True),
        Check("lowest AUROC of a set, foreign", lowest, WANTED, True),
        Check("milliseconds a question", float(figures["milliseconds"]), MOST_MS, False),
    ]
    return figures, checks


def ring(sets: Sequence[Set], given: Mapping[tuple[str, str], Doubles]) -> Doubles:
    """Each question on one foreign index: its place among its set's questions says which."""
    found = []
    for asked in sets:
        others = [each.name for each in sets if each.name != asked.name]
        found += [given[asked.name, others[at % len(others)]][at] for at in range(len(asked.questions))]
    return np.array(found)


def calibration(own_n: Doubles, absent_n: Doubles, kind: str, figure: Path | None) -> dict[str, float | str]:
    """Expected calibration error and Brier score over as many of either."""
    probability_n = np.concatenate([own_n, absent_n])
    label_n = np.repeat(np.array([0, 1], np.int64), [len(own_n), len(absent_n)])
    bins = reliability(probability_n, label_n)
    if figure is not None:
        draw_reliability(bins, figure, "questions", "absent")
    brier = float(np.square(probability_n - label_n).mean())
    return {f"all: ECE, {kind}": calibration_error(bins), f"all: Brier score, {kind}": brier}


def judging_ms(sets: Sequence[Set], found: Mapping[tuple[str, str], list[Evidence]]) -> float:
    """Median processor time of judging a question on its own index, its evidence being there."""
    seconds = []
    for each in sets:
        vectors_QD = each.index.encode_queries([asked.text for asked in each.questions])
        for asked, vector_D, evidence in zip(each.questions, vectors_QD, found[each.name, each.name], strict=True):
            passages = [passage.item for passage in evidence.passages]
            started = time.process_time()
            absence(signs(each.index, Query(asked.text, vector_D), passages))
            seconds.append(time.process_time() - started)
    return 1000 * median(seconds)


def examples(index: Index) -> Iterator[tuple[Floats, int]]:
    """Signs and whether the documents are missing (1) or there (0): questions on the whole index, and on parts of it that have all
    or none of the documents that answer them.
    """
    asked = [each for each in read_questions(ROOT / "examples" / "questions.jsonl") if each.split != "test"]
    asked = [each for each in asked if each.kind != ABSTRACT]
    draw, sources = random.Random(0), index.sources()
    parts = [index]
    for share in SHARES * DRAWS:
        gone = draw.sample(sources, len(sources) - int(share * len(sources)))
        parts.append(index.only(tuple(Condition("source", "!=", source) for source in gone)))
    for part in parts:
        held = set(part.sources())
        judged = [each for each in asked if len(held & set(each.gold_sources)) in (0, len(set(each.gold_sources)))]
        vectors_QD = index.encode_queries([each.text for each in judged])
        for each, vector_D, evidence in zip(judged, vectors_QD, find(part, judged), strict=True):
            passages = [passage.item for passage in evidence.passages]
            yield signs(part, Query(each.text, vector_D), passages), int(held.isdisjoint(each.gold_sources))


def fit(index: Index) -> dict[str, float | str]:
    """Coefficients of a logistic function of the signs, both kinds weighed alike, next to no penalty."""
    signs_nF, label_n = map(np.array, zip(*examples(index), strict=True))
    model = LogisticRegression(C=1000, class_weight="balanced").fit(signs_nF, label_n)
    return {
        "there": int((label_n == 0).sum()),
        "missing": int(label_n.sum()),
        "BASE": float(model.intercept_[0]),
        **{f"COEFFICIENTS_F[{at}]": float(value) for at, value in enumerate(model.coef_[0])},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--index", type=Path, action="append", default=[])
    parser.add_argument("--questions", type=Path, action="append", default=[])
    parser.add_argument("--most", type=int, default=100, help="questions of a set")
    parser.add_argument("--figure", type=Path, help="reliability plot to write, as PNG")
    parser.add_argument("--fit", type=Path, help="index of examples/documents")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.fit is not None:
        return print_report("abstain, fit", fit(open_index(arguments.fit)), [], arguments.json)
    pairs = zip(arguments.index, arguments.questions, strict=True)
    figures, checks = measure([Set.read(*pair, arguments.most) for pair in pairs], arguments.figure)
    return print_report("abstain", figures, checks, arguments.json)


if __name__ == "__main__":
    raise SystemExit(main())
