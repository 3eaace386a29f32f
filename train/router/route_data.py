"""Route datasets as `synth route` wrote them, to arrays; what no router can be learned from is refused before training.

Legend: Q questions, M modes, F features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_synth.route import RouteRow, route_from_json, route_problems
from graph.documents.questions import SPLITS
from graph.errors import UserError
from graph.retrieve.learned.router import QUERY_FEATURES
from graph.retrieve.retrieve import DIRECT_STRATEGIES
from graph.shared.ids import content_id
from graph.shared.modes import Mode
from graph.types import Floats, Ints
from train.shared import labelled
from train.shared.labelled import Labels, check_apart, read_folders

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Questions:
    """Questions and what each mode did for them. `ms_QM` are typical milliseconds: each mode's median over its dataset.

    `features_ms_Q` are those of making a question's features, again its dataset's median; `names` the datasets, `dataset_Q` rows
    of them.
    """

    ids: tuple[str, ...]
    kinds: tuple[str, ...]
    texts: tuple[str, ...]
    names: tuple[str, ...]
    dataset_Q: Ints
    modes: tuple[Mode, ...]
    features_QF: Floats
    recall_QM: Doubles
    ms_QM: Doubles
    tokens_QM: Doubles
    features_ms_Q: Doubles


@dataclass(frozen=True)
class Point:
    """A way of routing: mean Recall@5, milliseconds (with the routing) and model tokens a question, and how often it chose each mode."""

    name: str
    recall: float
    milliseconds: float
    tokens: float
    chosen: Mapping[str, int]


@dataclass(frozen=True)
class RouterRecord:
    """How a router came to be. `data` gives the fingerprint of each dataset by its folder's name; `points` are of the splits named.

    `unseen` are points over train and dev, each question predicted from others: what prices and margin were chosen by. `learned_from`
    are the fingerprints of those questions, so that an evaluation on one of them can be refused.
    """

    data: Mapping[str, str]
    encoder: str
    features: tuple[str, ...]
    settings: Mapping[str, Any]
    questions: Mapping[str, int]
    modes: tuple[str, ...]
    default: str
    price_per_ms: float
    price_per_token: float
    margin: float
    unseen: tuple[Point, ...]
    test: tuple[Point, ...]
    train_seconds: float
    versions: Mapping[str, str]
    learned_from: tuple[str, ...]


LABELS = Labels("synth route", "query_features", QUERY_FEATURES, route_from_json, route_problems)
RouteDataset = labelled.Dataset[RouteRow]
MORE_DATA = "make the data from more questions, or add another --data"


def read_datasets(folders: Sequence[Path]) -> list[RouteDataset]:
    """All datasets; UserError for rows that cannot be learned from, for several encoders, and for questions in two splits."""
    datasets = read_folders(folders, LABELS)
    rows = {split: [row for dataset in datasets for row in dataset.rows[split]] for split in SPLITS}
    for split, of in rows.items():
        if not of:
            raise UserError(f"{split}: no rows", "questions in train, dev and test", MORE_DATA)
    ids = {split: {row.question.casefold(): row.id for row in of} for split, of in rows.items()}
    check_apart("question", ids, "splits that share no question", "make the data anew from all these questions at once")
    return datasets


def check_learnable(datasets: Sequence[RouteDataset]) -> None:
    """UserError where one mode is the best of every question of train: there is nothing to choose."""
    best = {row.best_mode for dataset in datasets for row in dataset.rows["train"]}
    if len(best) == 1:
        [mode] = best
        raise UserError(
            f"train: the best mode of every question is {mode}", "questions that differ in it", f"use --mode {mode}"
        )


def shared_modes(datasets: Sequence[RouteDataset]) -> tuple[Mode, ...]:
    """The modes that were run for every question, in the order of the first; UserError for fewer than two, naming those of each."""
    by_dataset = {dataset.name: modes_of(dataset) for dataset in datasets}
    first = next(iter(by_dataset.values()))
    shared = tuple(mode for mode in first if all(mode in modes for modes in by_dataset.values()))
    if len(shared) < 2:
        told = "; ".join(f"{name}: {', '.join(modes) or 'none'}" for name, modes in by_dataset.items())
        raise UserError(
            f"modes run for every question: {', '.join(shared) or 'none'} ({told})",
            "two or more in all datasets",
            "make the data again with the same --modes",
        )
    return tuple(mode for mode in DIRECT_STRATEGIES if mode in shared)


def modes_of(dataset: RouteDataset) -> list[str]:
    """The modes that were run for every question of a dataset."""
    rows = [row for split in SPLITS for row in dataset.rows[split]]
    return [mode for mode in rows[0].runs if all(mode in row.runs for row in rows)] if rows else []


def questions_of(datasets: Sequence[RouteDataset], splits: Sequence[str], modes: Sequence[Mode]) -> Questions:
    """The questions of some splits of all datasets as arrays."""
    rows = [(place, row) for place, dataset in enumerate(datasets) for split in splits for row in dataset.rows[split]]
    typical = [typical_ms(dataset, modes) for dataset in datasets]
    making = [features_ms(dataset) for dataset in datasets]
    return Questions(
        ids=tuple(row.id for _, row in rows),
        kinds=tuple(row.kind or "unspecified" for _, row in rows),
        texts=tuple(row.question for _, row in rows),
        names=tuple(dataset.name for dataset in datasets),
        dataset_Q=np.array([place for place, _ in rows], np.int64),
        modes=tuple(modes),
        features_QF=np.array([row.features for _, row in rows], np.float32),
        recall_QM=np.array([[row.runs[mode].recall_at_5 for mode in modes] for _, row in rows], np.float64),
        ms_QM=np.array([[typical[place][mode] for mode in modes] for place, _ in rows], np.float64),
        tokens_QM=np.array([[row.runs[mode].tokens for mode in modes] for _, row in rows], np.float64),
        features_ms_Q=np.array([making[place] for place, _ in rows], np.float64),
    )


def typical_ms(dataset: RouteDataset, modes: Sequence[Mode]) -> Mapping[Mode, float]:
    """Each mode's median of milliseconds over a dataset: what else the machine did during one question says nothing of the mode."""
    rows = [row for split in SPLITS for row in dataset.rows[split]]
    return {mode: median(row.runs[mode].milliseconds for row in rows) for mode in modes} if rows else {}


def features_ms(dataset: RouteDataset) -> float:
    """The median of the milliseconds of making a question's features."""
    return median(row.features_ms for split in SPLITS for row in dataset.rows[split])


def fingerprint(question: str) -> str:
    """What makes two questions one: their words, not their case."""
    return content_id("question", question.casefold())
