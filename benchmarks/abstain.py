"""Does abstaining separate the questions that an index can answer from those that it cannot?

The questions of each set can be answered from their own index, but not from the indexes of the other sets ("foreign"). The harder case is measured
separately: their own index without the documents that answer them ("missing"). The figures are AUROC, shares of abstentions, and calibration
(for which each question is asked of its own index and of one other, so that answerable and foreign questions are equally frequent).
Milliseconds are processor time for judging the evidence.
With --fit, the coefficients of graph/retrieve/absence.py are fitted instead, on the train and dev questions of an index of examples/documents.

Run: python -P benchmarks/abstain.py (--index FOLDER --questions FILE.jsonl)... [--most 100] [--figure FILE.png] [--json]
     python -P benchmarks/abstain.py --fit INDEX_OF_EXAMPLES
"""

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

from benchmarks.report import Check, new_parser, print_report
from graph.documents.questions import Question, read_questions
from graph.index.filters import Condition
from graph.index.index import Index, open_index
from graph.retrieve.absence import absence, absence_features
from graph.retrieve.parts.query import Query, RetrieveSettings
from graph.retrieve.retrieve import retrieve_many
from graph.types import Evidence, Floats
from train.classifiers import calibration_error, draw_reliability, reliability

Doubles = NDArray[np.float64]
ABSTRACT = "abstract"
SETTINGS = RetrieveSettings(top_k=5, abstain=1)
THRESHOLDS = (0.5, 0.9)
MIN_AUROC, MAX_MS = 0.9, 1.0
SHARES, PARTS_PER_SHARE = (0.1, 0.25, 0.5, 0.75), 3
"""For fitting: shares of the documents in examples/ that a part of the index contains, and the number of parts for each share."""


@dataclass(frozen=True)
class QuestionSet:
    """An index and questions that it can answer."""

    name: str
    index: Index
    questions: tuple[Question, ...]

    @classmethod
    def read(cls, folder: Path, questions: Path, most: int) -> "QuestionSet":
        """An index with at most `most` of its questions, sampled with a fixed seed from those that have gold documents and are not abstract."""
        eligible = [
            question for question in read_questions(questions) if question.gold_sources and question.kind != ABSTRACT
        ]
        random.Random(0).shuffle(eligible)
        return cls(folder.name, open_index(folder), tuple(eligible[:most]))


def retrieve_all(index: Index, questions: Sequence[Question]) -> list[Evidence]:
    """The evidence of the default mode, with absence judged."""
    return retrieve_many(index, [question.text for question in questions], SETTINGS)


def probabilities(evidences: Sequence[Evidence]) -> Doubles:
    """The probability of absence; 0 if it was not judged, since there is no abstention then."""
    return np.array([evidence.absence.probability if evidence.absence is not None else 0.0 for evidence in evidences])


def without_gold(index: Index, question: Question) -> Index:
    """The index without the documents that answer the question."""
    return index.only(tuple(Condition("source", "!=", source) for source in question.gold_sources))


def auroc(own_n: Doubles, absent_n: Doubles) -> float:
    """The probability that a question without an answer in the index gets a higher probability of absence than one with an answer."""
    return float(roc_auc_score([0] * len(own_n) + [1] * len(absent_n), np.concatenate([own_n, absent_n])))


def measure(sets: Sequence[QuestionSet], figure: Path | None) -> tuple[dict[str, float | str], list[Check]]:
    """All figures, and their checks."""
    evidence_by_pair = {
        (source.name, target.name): retrieve_all(target.index, source.questions) for source in sets for target in sets
    }
    absence_by_pair = {pair: probabilities(item) for pair, item in evidence_by_pair.items()}
    own = {item.name: absence_by_pair[item.name, item.name] for item in sets}
    foreign = {
        name: np.concatenate([absence_by_pair[pair] for pair in absence_by_pair if pair[0] == name != pair[1]])
        for name in own
    }
    missing = {
        item.name: probabilities(
            [retrieve_all(without_gold(item.index, source), [source])[0] for source in item.questions]
        )
        for item in sets
    }
    figures: dict[str, float | str] = {}
    for name, own_n in own.items():
        figures[f"{name}: questions"] = len(own_n)
        figures[f"{name}: AUROC, foreign"] = auroc(own_n, foreign[name])
        figures[f"{name}: AUROC, missing"] = auroc(own_n, missing[name])
        for kind, values in (("own", own_n), ("foreign", foreign[name]), ("missing", missing[name])):
            figures |= {f"{name}: abstained at {at}, {kind}": float((values >= at).mean()) for at in THRESHOLDS}
    figures |= {
        f"{source} on {target}: AUROC": auroc(own[source], absence_by_pair[source, target])
        for source, target in absence_by_pair
        if source != target
    }
    combined = {
        kind: np.concatenate(list(values_by_set.values()))
        for kind, values_by_set in (("own", own), ("foreign", foreign), ("missing", missing))
    }
    for kind in ("foreign", "missing"):
        figures[f"all: AUROC, {kind}"] = auroc(combined["own"], combined[kind])
    for kind, values in combined.items():
        figures |= {f"all: abstained at {at}, {kind}": float((values >= at).mean()) for at in THRESHOLDS}
    figures |= calibration(combined["own"], absence_on_one_foreign_index(sets, absence_by_pair), "foreign", figure)
    figures |= calibration(combined["own"], combined["missing"], "missing", None)
    figures["milliseconds"] = judging_ms(sets, evidence_by_pair)
    lowest = min(auroc(own[name], foreign[name]) for name in own)
    checks = [
        Check("AUROC of all, foreign", float(figures["all: AUROC, foreign"]), MIN_AUROC, True),
        Check("lowest AUROC of a set, foreign", lowest, MIN_AUROC, True),
        Check("milliseconds per question", float(figures["milliseconds"]), MAX_MS, False),
    ]
    return figures, checks


def absence_on_one_foreign_index(
    sets: Sequence[QuestionSet], absence_by_pair: Mapping[tuple[str, str], Doubles]
) -> Doubles:
    """The probability of absence of each question on one foreign index, which the question's position in its set determines."""
    absence_probabilities = []
    for source in sets:
        others = [other.name for other in sets if other.name != source.name]
        absence_probabilities += [
            absence_by_pair[source.name, others[index % len(others)]][index] for index in range(len(source.questions))
        ]
    return np.array(absence_probabilities)


def calibration(own_n: Doubles, absent_n: Doubles, kind: str, figure: Path | None) -> dict[str, float | str]:
    """Expected calibration error and Brier score over equally many answerable and unanswerable questions; `kind` says how the latter were made."""
    probability_n = np.concatenate([own_n, absent_n])
    label_n = np.repeat(np.array([0, 1], np.int64), [len(own_n), len(absent_n)])
    bins = reliability(probability_n, label_n)
    if figure is not None:
        draw_reliability(bins, figure, "questions", "absent")
    brier = float(np.square(probability_n - label_n).mean())
    return {f"all: ECE, {kind}": calibration_error(bins), f"all: Brier score, {kind}": brier}


def judging_ms(sets: Sequence[QuestionSet], evidence_by_pair: Mapping[tuple[str, str], list[Evidence]]) -> float:
    """Median processor milliseconds for judging whether a question's own index covers it, given the evidence."""
    seconds = []
    for item in sets:
        vectors_QD = item.index.encode_queries([question.text for question in item.questions])
        for question, vector_D, evidence in zip(
            item.questions, vectors_QD, evidence_by_pair[item.name, item.name], strict=True
        ):
            passages = [passage.item for passage in evidence.passages]
            started = time.process_time()
            absence(absence_features(item.index, Query(question.text, vector_D), passages))
            seconds.append(time.process_time() - started)
    return 1000 * median(seconds)


def fitting_examples(index: Index) -> Iterator[tuple[Floats, int]]:
    """The features of a question and its label, 1 if the documents that answer it are missing, else 0: for each question on the complete index, and
    on each part of it that contains all or none of these documents.
    """
    questions = [
        question
        for question in read_questions(ROOT / "examples" / "questions.jsonl")
        if question.split != "test" and question.kind != ABSTRACT
    ]
    rng, sources = random.Random(0), index.sources()
    parts = [index]
    for share in SHARES * PARTS_PER_SHARE:
        removed = rng.sample(sources, len(sources) - int(share * len(sources)))
        parts.append(index.only(tuple(Condition("source", "!=", source) for source in removed)))
    for part in parts:
        present = set(part.sources())
        part_questions = [
            question
            for question in questions
            if len(present & set(question.gold_sources)) in (0, len(set(question.gold_sources)))
        ]
        vectors_QD = index.encode_queries([question.text for question in part_questions])
        for question, vector_D, evidence in zip(
            part_questions, vectors_QD, retrieve_all(part, part_questions), strict=True
        ):
            passages = [passage.item for passage in evidence.passages]
            is_absent = int(present.isdisjoint(question.gold_sources))
            yield absence_features(part, Query(question.text, vector_D), passages), is_absent


def fit(index: Index) -> dict[str, float | str]:
    """Coefficients of a logistic function of the features, fitted with equal weight for both classes and almost no penalty."""
    features_nF, label_n = map(np.array, zip(*fitting_examples(index), strict=True))
    model = LogisticRegression(C=1000, class_weight="balanced").fit(features_nF, label_n)
    return {
        "present": int((label_n == 0).sum()),
        "missing": int(label_n.sum()),
        "INTERCEPT": float(model.intercept_[0]),
        **{f"COEFFICIENTS_F[{at}]": float(value) for at, value in enumerate(model.coef_[0])},
    }


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--index", type=Path, action="append", default=[])
    parser.add_argument("--questions", type=Path, action="append", default=[])
    parser.add_argument("--most", type=int, default=100, help="largest number of questions per set")
    parser.add_argument("--figure", type=Path, help="reliability plot to write, as PNG")
    parser.add_argument("--fit", type=Path, help="index of examples/documents")
    arguments = parser.parse_args()
    if arguments.fit is not None:
        return print_report("abstain, fit", fit(open_index(arguments.fit)), [], arguments.json)
    if not len(arguments.index) == len(arguments.questions) >= 2:
        parser.error(
            f"found {len(arguments.index)} --index and {len(arguments.questions)} --questions; give at least two --index, each with its --questions"
        )
    pairs = zip(arguments.index, arguments.questions, strict=True)
    figures, checks = measure([QuestionSet.read(*pair, arguments.most) for pair in pairs], arguments.figure)
    return print_report("abstain", figures, checks, arguments.json)


if __name__ == "__main__":
    raise SystemExit(main())
