"""Relevance datasets as `synth relevance` wrote them, to arrays; what cannot be learned from is refused before training.

And how well scores rank each question's propositions: mean average precision, beside that of the cosine.
Legend: n examples (a question and a proposition each), F features, B bins of probability."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score

from data_synth.relevance.relevance_form import SPLIT_BY, RelevanceRow, relevance_from_json, relevance_problems
from graph.documents.questions import SPLITS
from graph.errors import UserError
from graph.retrieve.learned.light import FEATURES
from graph.trees import probabilities
from graph.types import Floats, Ints
from train.shared import labelled
from train.shared.calibrate import Bin
from train.shared.labelled import Labels, check_apart, read_folders

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Examples:
    """One split. `question_n` numbers the questions; `own_n` marks propositions of the passages that a question was published with."""

    features_nF: Floats
    label_n: Ints
    question_n: Ints
    own_n: NDArray[np.bool_]
    dataset_n: Ints


HELD_OUT = ("dev", "test")


@dataclass(frozen=True)
class Verdicts:
    """What a finished selector says of the examples of HELD_OUT: log odds, with the temperature in them."""

    temperature: float
    threshold: float
    log_odds: Mapping[str, Doubles]

    def probability(self, split: str) -> Doubles:
        """The probability of each example to be relevant: [n]."""
        return probabilities(self.log_odds[split], 1.0)


@dataclass(frozen=True)
class RankingFigures:
    """Mean average precision over the questions of a dataset, each over the propositions of its own passages.

    `standard_error` is that of the mean difference between the selector and the cosine.
    """

    dataset: str
    split: str
    questions: int
    selector: float
    cosine: float
    standard_error: float


@dataclass(frozen=True)
class CrossRecord:
    """How the cross-encoder of a cross selector came to be: pairs learned from, the step that was best on dev, the blend of logits.

    `light_ranked` is what the light selector that it reads after ranks by itself.
    """

    start: str
    pairs: int
    best_step: int
    weight: float
    base: float
    depth: int
    light_ranked: tuple[RankingFigures, ...]


@dataclass(frozen=True)
class SelectorRecord:
    """How a selector came to be, and its figures. `data` gives the fingerprint of each dataset by its folder's name;
    `sharing_passages` names those whose splits share passages, though no question.

    `trees` are those of the light selector, which a cross selector has too; `cross` is None for a light one. `processor_seconds` are
    those of all cores.
    """

    size: str
    data: Mapping[str, str]
    sharing_passages: tuple[str, ...]
    encoder: str
    features: tuple[str, ...]
    settings: Mapping[str, Any]
    examples: Mapping[str, int]
    trees: int
    temperature: float
    threshold: float
    ranked: tuple[RankingFigures, ...]
    figures: Mapping[str, float]
    reliability: tuple[Bin, ...]
    train_seconds: float
    processor_seconds: float
    versions: Mapping[str, str]
    cross: CrossRecord | None = None


OWN = ("gold", "own")
"""`found_by` of propositions that stand in a passage that the question was published with."""
LABELS = Labels("synth relevance", "features", FEATURES, relevance_from_json, relevance_problems)
RelevanceDataset = labelled.Dataset[RelevanceRow]


def read_datasets(folders: Sequence[Path]) -> list[RelevanceDataset]:
    """All datasets; UserError for rows that cannot be learned from, for several encoders, and for splits that share anything."""
    datasets = read_folders(folders, LABELS)
    for split in SPLITS:
        check_classes(split, rows_of(datasets, split))
    check_nothing_shared(datasets)
    return datasets


def rows_of(datasets: Sequence[RelevanceDataset], split: str) -> list[RelevanceRow]:
    """The rows of one split of all datasets."""
    return [row for dataset in datasets for row in dataset.rows[split]]


def check_classes(split: str, rows: Sequence[RelevanceRow]) -> None:
    """UserError unless a split has relevant and irrelevant rows."""
    relevant = sum(row.label for row in rows)
    if not 0 < relevant < len(rows):
        raise UserError(
            f"{split}: {relevant:,} relevant of {len(rows):,} rows",
            "both classes in train, dev and test",
            "make the data from more questions, or add another --data",
        )


def shares_passages(dataset: RelevanceDataset) -> bool:
    """Whether its splits share no question only (`synth relevance --split-by questions`)."""
    return dataset.origin.get(SPLIT_BY) == "questions"


def check_nothing_shared(datasets: Sequence[RelevanceDataset]) -> None:
    """UserError, naming them, for questions that are in two splits, and for propositions and passages of datasets that split by these."""
    rows = {split: rows_of(datasets, split) for split in SPLITS}
    by_passages = [dataset for dataset in datasets if not shares_passages(dataset)]
    apart = {split: rows_of(by_passages, split) for split in SPLITS}
    keys = {
        "question": {split: {row.question.casefold(): row.question_id for row in of} for split, of in rows.items()},
        "proposition": {split: {row.proposition_id: row.proposition_id for row in of} for split, of in apart.items()},
        "passage": {split: {each: each for row in of for each in row.passage_ids} for split, of in apart.items()},
    }
    expected = "splits that share no question, proposition or passage"
    for what, ids in keys.items():
        check_apart(what, ids, expected, "make the second dataset with `synth relevance --beside FIRST`")


def examples_of(datasets: Sequence[RelevanceDataset], split: str) -> Examples:
    """One split of all datasets as arrays."""
    rows = [(place, row) for place, dataset in enumerate(datasets) for row in dataset.rows[split]]
    asked = [(place, row.question_id) for place, row in rows]
    numbers = {question: number for number, question in enumerate(dict.fromkeys(asked))}
    return Examples(
        features_nF=np.array([row.features for _, row in rows], np.float32),
        label_n=np.array([row.label for _, row in rows], np.int64),
        question_n=np.array([numbers[question] for question in asked], np.int64),
        own_n=np.array([row.found_by in OWN for _, row in rows], np.bool_),
        dataset_n=np.array([place for place, _ in rows], np.int64),
    )


COSINE = FEATURES.index("nearness")


def average_precisions(examples: Examples, scores_n: Doubles) -> Doubles:
    """The average precision of each question with a relevant proposition among its own passages', over those: one a question."""
    found = []
    for question in np.unique(examples.question_n[examples.own_n]):
        own_n = examples.own_n & (examples.question_n == question)
        if examples.label_n[own_n].any():
            found.append(average_precision_score(examples.label_n[own_n], scores_n[own_n]))
    return np.array(found, np.float64)


def rank_datasets(
    examples: Examples, scores_n: Doubles, names: Sequence[str], split: str
) -> tuple[RankingFigures, ...]:
    """The figures of each dataset that has such questions in this split."""
    found = []
    for place, name in enumerate(names):
        part = of_dataset(examples, place)
        chosen = average_precisions(part, scores_n[examples.dataset_n == place])
        cosine = average_precisions(part, part.features_nF[:, COSINE].astype(np.float64))
        if len(chosen):
            error = float((chosen - cosine).std(ddof=1) / np.sqrt(len(chosen))) if len(chosen) > 1 else 0.0
            found.append(RankingFigures(name, split, len(chosen), float(chosen.mean()), float(cosine.mean()), error))
    return tuple(found)


def of_dataset(examples: Examples, place: int) -> Examples:
    """The examples of one dataset."""
    own_n = examples.dataset_n == place
    return Examples(
        examples.features_nF[own_n],
        examples.label_n[own_n],
        examples.question_n[own_n],
        examples.own_n[own_n],
        examples.dataset_n[own_n],
    )
