"""Which (question, proposition) pairs a cross-encoder learns from and is measured on: bounded for each question, hard ones first.

Legend: n examples of a split, r of them chosen.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from graph.retrieve.learned.cross import most_promising
from graph.shared.types import Ints
from train.selector.data import Dataset
from train.selector.settings import CrossSettings
from train.selector.types import Examples

Doubles = NDArray[np.float64]


def texts_of(datasets: Sequence[Dataset], split: str) -> list[tuple[str, str]]:
    """Question and proposition of each example, in the order of `examples_of`: n pairs."""
    return [(row.question, row.proposition) for dataset in datasets for row in dataset.rows[split]]


def training_rows(examples: Examples, light_n: Doubles, settings: CrossSettings, seed: int) -> Ints:
    """Of each question its relevant propositions that the light selector likes least, and its hard negatives: [r].

    Hard negatives are the irrelevant ones that it likes best; a few more are drawn at random from the others, so that the easy ones
    are known too.
    """
    random = np.random.default_rng(seed)
    chosen: list[Ints] = []
    for rows in rows_by_question(examples.question_n):
        order = rows[np.argsort(-light_n[rows], kind="stable")]
        relevant_n = examples.label_n[order] == 1
        others = order[~relevant_n]
        easy = others[settings.hard_negatives :]
        drawn = random.choice(easy, min(settings.random_negatives, len(easy)), replace=False)
        chosen += [order[relevant_n][-settings.positives :], others[: settings.hard_negatives], drawn]
    return np.concatenate(chosen)


def read_rows_of(question_n: Ints, light_n: Doubles, depth: int) -> Ints:
    """Of each question the `depth` examples that the cross-encoder reads when retrieval asks it: [r]."""
    return np.concatenate([rows[most_promising(light_n[rows], depth)] for rows in rows_by_question(question_n)])


def rows_by_question(question_n: Ints) -> list[Ints]:
    """The examples of each question, ascending.

    >>> [rows.tolist() for rows in rows_by_question(np.array([0, 1, 0, 1]))]
    [[0, 2], [1, 3]]
    """
    order = np.argsort(question_n, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(question_n[order])) + 1)
