"""Relevance datasets as `synth relevance` wrote them, to arrays; what cannot be learned from is refused before training.

Legend: n examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from data_synth.relevance.types import SPLIT_BY, RelevanceRow, relevance_from_json, relevance_problems
from graph.documents.questions import SPLITS
from graph.retrieve.learned.features import FEATURES
from graph.shared.errors import UserError
from train.selector.types import Examples
from train.shared import labelled
from train.shared.labelled import Labels, check_apart, read_folders

OWN = ("gold", "own")
"""`found_by` of propositions that stand in a passage that the question was published with."""
LABELS = Labels("synth relevance", "features", FEATURES, relevance_from_json, relevance_problems)
Dataset = labelled.Dataset[RelevanceRow]


def read_datasets(folders: Sequence[Path]) -> list[Dataset]:
    """All datasets; UserError for rows that cannot be learned from, for several encoders, and for splits that share anything."""
    datasets = read_folders(folders, LABELS)
    for split in SPLITS:
        check_classes(split, rows_of(datasets, split))
    check_nothing_shared(datasets)
    return datasets


def rows_of(datasets: Sequence[Dataset], split: str) -> list[RelevanceRow]:
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


def shares_passages(dataset: Dataset) -> bool:
    """Whether its splits share no question only (`synth relevance --split-by questions`)."""
    return dataset.origin.get(SPLIT_BY) == "questions"


def check_nothing_shared(datasets: Sequence[Dataset]) -> None:
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


def examples_of(datasets: Sequence[Dataset], split: str) -> Examples:
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
