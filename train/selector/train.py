"""`modegraph train selector --size light`: relevance data in, a folder that `--selector` takes out. Seconds on one core.

Train grows the trees; dev stops them, sets the temperature and the threshold; test is only measured on.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from graph.console import say
from graph.jsonl import write_json
from graph.questions import SPLITS
from graph.retrieve.classifier import Classifier, forest_logits, relevance, save_selector
from graph.retrieve.features import FEATURES
from train.save import fresh_folder
from train.selector.calibrate import (
    calibration_error,
    fit_temperature,
    kept_figures,
    log_loss,
    reliability,
    threshold_for,
)
from train.selector.card import selector_card
from train.selector.data import Dataset, examples_of, read_datasets
from train.selector.figure import draw_reliability
from train.selector.ranking import rank_datasets
from train.selector.settings import SelectorSettings
from train.selector.trees import best_count, fit_trees, to_forest
from train.selector.types import Examples, Ranked, SelectorRecord

RECORD, PLOT, CARD = "selector.json", "reliability.png", "README.md"
LIBRARIES = ("scikit-learn", "numpy")


def train_selector(settings: SelectorSettings) -> SelectorRecord:
    """Read, train, measure and save; UserError, before training, for data that cannot be learned from or a place that is taken."""
    output = Path(settings.output)
    with fresh_folder(output) as folder:
        datasets = read_datasets([Path(each) for each in settings.data])
        splits = {split: examples_of(datasets, split) for split in SPLITS}
        for split, examples in splits.items():
            say(f"{split}: {len(examples.label_n):,} rows, {int(examples.label_n.sum()):,} of them relevant")
        started = time.perf_counter()
        classifier, trees = fit_classifier(splits["train"], splits["dev"], settings, datasets[0].encoder)
        seconds = time.perf_counter() - started
        record = describe(classifier, trees, splits, datasets, settings, seconds)
        save_selector(folder, classifier)
        draw_reliability(record.reliability, folder / PLOT)
        (folder / CARD).write_text(selector_card(record), encoding="utf-8")
        write_json(folder / RECORD, asdict(record))
    return record


def fit_classifier(train: Examples, dev: Examples, settings: SelectorSettings, encoder: str) -> tuple[Classifier, int]:
    """The calibrated selector, and how many trees it has."""
    grown = fit_trees(train, dev, settings)
    count = best_count(grown)
    forest = to_forest(grown, count, settings.positive_weight)
    logits_n = forest_logits(forest, dev.features_nF)
    temperature = fit_temperature(logits_n, dev.label_n)
    unthresholded = Classifier(forest, temperature, 0.0, encoder)
    threshold = threshold_for(relevance(unthresholded, dev.features_nF), dev.label_n, settings.target_recall)
    return Classifier(forest, temperature, threshold, encoder), count


def describe(
    classifier: Classifier,
    trees: int,
    splits: dict[str, Examples],
    datasets: Sequence[Dataset],
    settings: SelectorSettings,
    seconds: float,
) -> SelectorRecord:
    """The record of a run: what it was made from, and its figures on dev and test."""
    probability = {split: relevance(classifier, splits[split].features_nF) for split in ("dev", "test")}
    names = [dataset.name for dataset in datasets]
    ranked: list[Ranked] = []
    for split, scores_n in probability.items():
        ranked += rank_datasets(splits[split], scores_n, names, split)
    bins = reliability(probability["test"], splits["test"].label_n)
    return SelectorRecord(
        size=settings.size,
        data={dataset.name: dataset.fingerprint for dataset in datasets},
        encoder=classifier.encoder,
        features=FEATURES,
        settings=settings.model_dump(mode="json"),
        examples={split: len(examples.label_n) for split, examples in splits.items()},
        trees=trees,
        temperature=classifier.temperature,
        threshold=classifier.threshold,
        ranked=tuple(ranked),
        figures=held_out_figures(classifier, splits["test"], probability["test"]) | {"ECE": calibration_error(bins)},
        reliability=bins,
        train_seconds=seconds,
        versions={name: version(name) for name in LIBRARIES},
    )


def held_out_figures(classifier: Classifier, test: Examples, probability_n: NDArray[np.float64]) -> dict[str, float]:
    """Log loss beside that of knowing only how many are relevant, and what the threshold keeps."""
    logits_n = forest_logits(classifier.forest, test.features_nF)
    share = float(test.label_n.mean())
    constant_n = np.full(len(test.label_n), np.log(share / (1 - share)))
    return {
        "log loss": log_loss(logits_n, test.label_n, classifier.temperature),
        "log loss of the share alone": log_loss(constant_n, test.label_n, 1.0),
        **kept_figures(probability_n, test.label_n, classifier.threshold),
    }
