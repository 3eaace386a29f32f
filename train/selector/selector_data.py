"""Relevance datasets of `synth relevance` as arrays; unusable data are rejected before training.

Also the ranking figures of each question's propositions: mean average precision, compared with the cosine's.
Legend: n examples (a question and a proposition each), F features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score

from data_synth.dataset.write import SUMMARY, stated_origin
from data_synth.relevance.relevance_form import SPLIT_BY, RelevanceRow, relevance_from_json, relevance_problems
from graph.documents.questions import SPLITS
from graph.errors import UserError
from graph.retrieve.learned.light import FEATURES
from graph.types import Floats, Ints
from train.classifiers import (
    Bin,
    Doubles,
    check_apart,
    check_both_classes,
    check_one_encoder,
    distinct_names,
    read_labelled,
    standard_error,
)


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
class RankingFigures:
    """The mean average precision of a selector and of the cosine on one dataset,
    over the propositions of the passages that each question was published with.

    `standard_error` is that of the mean difference between the selector and the cosine.
    """

    dataset: str
    split: str
    questions: int
    selector: float
    cosine: float
    standard_error: float


@dataclass(frozen=True)
class SelectorRecord:
    """The origin of a selector, and its figures. `data` maps each dataset's name (`distinct_names`) to its fingerprint;
    `sharing_passages` names datasets whose splits share passages, but no questions.

    `processor_seconds` is the processor time summed over all cores.
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


OWN = ("gold", "own")
"""The `found_by` of propositions in the passages that a question was published with."""
ROW = "a row as `synth relevance` writes it"


@dataclass(frozen=True)
class RelevanceDataset:
    """The rows of a folder by split, its fingerprint, the fingerprint of its features' encoder, and the origin stated in its summary."""

    name: str
    rows: Mapping[str, Sequence[RelevanceRow]]
    fingerprint: str
    encoder: str
    origin: Mapping[str, str]


def read_folder(folder: Path) -> RelevanceDataset:
    """One dataset; UserError if its summary names no encoder, or with file and line for a row that is malformed or has other features."""
    origin = stated_origin(folder)
    if "Encoder" not in origin:
        found = f"{folder / SUMMARY}: does not name the encoder"
        raise UserError(found, "a folder that `synth relevance` wrote", "make the data again")
    rows, fingerprint = read_labelled(folder, _parse, relevance_problems, ROW)
    by_split = {split: rows.get(split, []) for split in SPLITS}
    return RelevanceDataset(folder.resolve().name, by_split, fingerprint, origin["Encoder"], origin)


def _parse(values: Mapping[str, Any], where: str) -> RelevanceRow:
    """A row; UserError unless its features are those of this version."""
    features = values["features"] if isinstance(values.get("features"), dict) else {}
    problems = [f"without {name!r}" for name in FEATURES if name not in features]
    problems += [f"with {name!r}" for name in features if name not in FEATURES]
    if problems:
        expected = f"the {len(FEATURES)} features of this version"
        raise UserError(f"{where}: features " + ", ".join(problems), expected, "make the data again")
    return relevance_from_json(values)


def read_datasets(folders: Sequence[Path]) -> list[RelevanceDataset]:
    """All datasets; UserError for unusable rows, several encoders, a split without relevant or irrelevant rows, and overlapping splits."""
    named = zip(folders, distinct_names(folders), strict=True)
    datasets = [replace(read_folder(folder), name=name) for folder, name in named]
    check_one_encoder("datasets", {dataset.encoder: dataset.name for dataset in datasets})
    for split in SPLITS:
        remedy = "make the data from more questions, or add another --data"
        check_both_classes(split, "relevant", [row.label == 1 for row in rows_of(datasets, split)], remedy)
    check_nothing_shared(datasets)
    return datasets


def rows_of(datasets: Sequence[RelevanceDataset], split: str) -> list[RelevanceRow]:
    """The rows of one split of all datasets."""
    return [row for dataset in datasets for row in dataset.rows[split]]


def shares_passages(dataset: RelevanceDataset) -> bool:
    """Whether the splits of a dataset may share passages (`synth relevance --split-by questions`)."""
    return dataset.origin.get(SPLIT_BY) == "questions"


def check_nothing_shared(datasets: Sequence[RelevanceDataset]) -> None:
    """UserError, with their ids, for questions in two splits, and for propositions and passages in two splits of datasets split by passage."""
    rows = {split: rows_of(datasets, split) for split in SPLITS}
    by_passages = [dataset for dataset in datasets if not shares_passages(dataset)]
    apart = {split: rows_of(by_passages, split) for split in SPLITS}
    questions = {split: {row.question.casefold(): row.question_id for row in part} for split, part in rows.items()}
    propositions = {split: {row.proposition_id: row.proposition_id for row in part} for split, part in apart.items()}
    passages = {split: {each: each for row in part for each in row.passage_ids} for split, part in apart.items()}
    expected = "splits that share no question, proposition or passage"
    remedy = "make the second dataset with `synth relevance --beside FIRST`"
    for kind, ids in (("question", questions), ("proposition", propositions), ("passage", passages)):
        check_apart(kind, ids, expected, remedy)


def examples_of(datasets: Sequence[RelevanceDataset], split: str) -> Examples:
    """One split of all datasets as arrays."""
    rows = [(dataset_row, row) for dataset_row, dataset in enumerate(datasets) for row in dataset.rows[split]]
    questions = [(dataset_row, row.question_id) for dataset_row, row in rows]
    numbers = {question: number for number, question in enumerate(dict.fromkeys(questions))}
    return Examples(
        features_nF=np.array([row.features for _, row in rows], np.float32),
        label_n=np.array([row.label for _, row in rows], np.int64),
        question_n=np.array([numbers[question] for question in questions], np.int64),
        own_n=np.array([row.found_by in OWN for _, row in rows], np.bool_),
        dataset_n=np.array([dataset_row for dataset_row, _ in rows], np.int64),
    )


COSINE = FEATURES.index("similarity")


def average_precisions(examples: Examples, scores_n: Doubles) -> Doubles:
    """The average precision of each question among its propositions in `own_n`, if one of them is relevant."""
    own = np.flatnonzero(examples.own_n)
    own = own[np.argsort(examples.question_n[own], kind="stable")]
    _, starts = np.unique(examples.question_n[own], return_index=True)
    precisions = [
        average_precision_score(examples.label_n[rows], scores_n[rows])
        for rows in np.split(own, starts[1:])
        if examples.label_n[rows].any()
    ]
    return np.array(precisions, np.float64)


def rank_datasets(
    examples: Examples, scores_n: Doubles, names: Sequence[str], split: str
) -> tuple[RankingFigures, ...]:
    """The figures of each dataset that has questions for `average_precisions` in this split."""
    figures = []
    for row, name in enumerate(names):
        in_dataset_n = examples.dataset_n == row
        part = Examples(**{name: values_n[in_dataset_n] for name, values_n in vars(examples).items()})
        selector = average_precisions(part, scores_n[in_dataset_n])
        cosine = average_precisions(part, part.features_nF[:, COSINE].astype(np.float64))
        if len(selector):
            means = float(selector.mean()), float(cosine.mean())
            figures.append(RankingFigures(name, split, len(selector), *means, standard_error(selector - cosine)))
    return tuple(figures)
