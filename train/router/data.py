"""Route datasets as `synth route` wrote them, to arrays; what no router can be learned from is refused before training.

Legend: Q questions, M modes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import numpy as np

from data_synth.route.types import RouteRow, route_from_json, route_problems
from graph.documents.questions import SPLITS
from graph.retrieve.learned.query_features import QUERY_FEATURES
from graph.retrieve.strategies import DIRECT_STRATEGIES
from graph.shared.errors import UserError
from graph.shared.ids import content_id
from graph.shared.modes import Mode
from train.router.types import Questions
from train.shared import labelled
from train.shared.labelled import Labels, check_apart, read_folders

LABELS = Labels("synth route", "query_features", QUERY_FEATURES, route_from_json, route_problems)
Dataset = labelled.Dataset[RouteRow]
MORE = "make the data from more questions, or add another --data"


def read_datasets(folders: Sequence[Path]) -> list[Dataset]:
    """All datasets; UserError for rows that cannot be learned from, for several encoders, and for questions in two splits."""
    datasets = read_folders(folders, LABELS)
    rows = {split: [row for dataset in datasets for row in dataset.rows[split]] for split in SPLITS}
    for split, of in rows.items():
        if not of:
            raise UserError(f"{split}: no rows", "questions in train, dev and test", MORE)
    ids = {split: {row.question.casefold(): row.id for row in of} for split, of in rows.items()}
    check_apart("question", ids, "splits that share no question", "make the data anew from all these questions at once")
    return datasets


def check_learnable(datasets: Sequence[Dataset]) -> None:
    """UserError where one mode is the best of every question of train: there is nothing to choose."""
    best = {row.best_mode for dataset in datasets for row in dataset.rows["train"]}
    if len(best) == 1:
        [mode] = best
        raise UserError(
            f"train: the best mode of every question is {mode}", "questions that differ in it", f"use --mode {mode}"
        )


def shared_modes(datasets: Sequence[Dataset]) -> tuple[Mode, ...]:
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


def modes_of(dataset: Dataset) -> list[str]:
    """The modes that were run for every question of a dataset."""
    rows = [row for split in SPLITS for row in dataset.rows[split]]
    return [mode for mode in rows[0].runs if all(mode in row.runs for row in rows)] if rows else []


def questions_of(datasets: Sequence[Dataset], splits: Sequence[str], modes: Sequence[Mode]) -> Questions:
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


def typical_ms(dataset: Dataset, modes: Sequence[Mode]) -> Mapping[Mode, float]:
    """Each mode's median of milliseconds over a dataset: what else the machine did during one question says nothing of the mode."""
    rows = [row for split in SPLITS for row in dataset.rows[split]]
    return {mode: median(row.runs[mode].milliseconds for row in rows) for mode in modes} if rows else {}


def features_ms(dataset: Dataset) -> float:
    """The median of the milliseconds of making a question's features."""
    return median(row.features_ms for split in SPLITS for row in dataset.rows[split])


def fingerprint(question: str) -> str:
    """What makes two questions one: their words, not their case."""
    return content_id("question", question.casefold())
