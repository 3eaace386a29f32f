"""`modegraph train selector`: relevance data in, a folder that `--selector` takes out. `light` takes seconds, `cross` minutes.

Train grows the trees and teaches the cross-encoder; dev stops them, sets temperature and threshold; test is only measured on.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import numpy as np

from graph.documents.questions import SPLITS
from graph.retrieve.learned.classifier import Classifier, probabilities, save_selector
from graph.retrieve.learned.features import FEATURES
from graph.retrieve.learned.forest import forest_logits
from graph.shared.console import say
from graph.shared.jsonl import write_json
from train.run.save import about_run, fresh_folder
from train.selector.card import selector_card
from train.selector.data import Dataset, examples_of, read_datasets, shares_passages
from train.selector.hop import HopRecord, train_hop
from train.selector.ranking import rank_datasets
from train.selector.settings import SelectorSettings
from train.selector.types import HELD_OUT, Examples, Ranked, SelectorRecord, Verdicts
from train.shared.calibrate import (
    calibration_error,
    fit_temperature,
    kept_figures,
    log_loss,
    reliability,
    threshold_for,
)
from train.shared.reliability_figure import draw_reliability
from train.shared.trees import best_count, fit_trees, to_forest

RECORD, PLOT, CARD = "selector.json", "reliability.png", "README.md"
LIBRARIES = {
    "light": ("scikit-learn", "numpy"),
    "cross": ("sentence-transformers", "transformers", "torch", "scikit-learn"),
}


def train_selector(settings: SelectorSettings) -> SelectorRecord | HopRecord:
    """Read, train, measure and save; UserError, before training, for data that cannot be learned from or a place that is taken."""
    return train_hop(settings) if settings.size == "hop" else train_judge(settings)


def train_judge(settings: SelectorSettings) -> SelectorRecord:
    """A light or a cross selector, which judges propositions."""
    about = about_run("selector", settings)
    with fresh_folder(Path(settings.output), resumable=settings.size == "cross", about=about) as folder:
        datasets = read_datasets([Path(each) for each in settings.data])
        splits = {split: examples_of(datasets, split) for split in SPLITS}
        for split, examples in splits.items():
            say(f"{split}: {len(examples.label_n):,} rows, {int(examples.label_n.sum()):,} of them relevant")
        started, spent = time.perf_counter(), time.process_time()
        classifier, trees = fit_classifier(splits["train"], splits["dev"], settings, datasets[0].encoder)
        save_selector(folder, classifier)
        verdicts, cross = light_verdicts(classifier, splits), None
        if settings.size == "cross":
            from train.selector.cross_run import fit_cross

            light_ranked = rank_held_out(splits, verdicts, datasets)
            verdicts, cross = fit_cross(classifier, datasets, splits, settings, folder, light_ranked)
        seconds = (time.perf_counter() - started, time.process_time() - spent)
        bins = reliability(verdicts.probability("test"), splits["test"].label_n)
        record = SelectorRecord(
            size=settings.size,
            data={dataset.name: dataset.fingerprint for dataset in datasets},
            sharing_passages=tuple(dataset.name for dataset in datasets if shares_passages(dataset)),
            encoder=classifier.encoder,
            features=FEATURES,
            settings=settings.recorded(),
            examples={split: len(examples.label_n) for split, examples in splits.items()},
            trees=trees,
            temperature=verdicts.temperature,
            threshold=verdicts.threshold,
            ranked=rank_held_out(splits, verdicts, datasets),
            figures=held_out_figures(verdicts, splits["test"]) | {"ECE": calibration_error(bins)},
            reliability=bins,
            train_seconds=seconds[0],
            processor_seconds=seconds[1],
            versions={name: version(name) for name in LIBRARIES[settings.size]},
            cross=cross,
        )
        draw_reliability(bins, folder / PLOT, "propositions", "relevant")
        (folder / CARD).write_text(selector_card(record), encoding="utf-8")
        write_json(folder / RECORD, asdict(record))
    return record


def fit_classifier(train: Examples, dev: Examples, settings: SelectorSettings, encoder: str) -> tuple[Classifier, int]:
    """The calibrated light selector, and how many trees it has."""
    grown = fit_trees(train, dev, settings, settings.positive_weight)
    count = best_count(grown)
    forest = to_forest(grown, count, settings.positive_weight)
    logits_n = forest_logits(forest, dev.features_nF)
    temperature = fit_temperature(logits_n, dev.label_n)
    threshold = threshold_for(probabilities(logits_n, temperature), dev.label_n, settings.target_recall)
    return Classifier(forest, temperature, threshold, encoder), count


def light_verdicts(classifier: Classifier, splits: Mapping[str, Examples]) -> Verdicts:
    """What the light selector says of the held-out examples."""
    log_odds = {
        split: forest_logits(classifier.forest, splits[split].features_nF) / classifier.temperature
        for split in HELD_OUT
    }
    return Verdicts(classifier.temperature, classifier.threshold, log_odds)


def rank_held_out(
    splits: Mapping[str, Examples], verdicts: Verdicts, datasets: Sequence[Dataset]
) -> tuple[Ranked, ...]:
    """How well each dataset's questions of dev and test are ranked."""
    names = [dataset.name for dataset in datasets]
    by_split = (rank_datasets(splits[split], verdicts.log_odds[split], names, split) for split in HELD_OUT)
    return tuple(ranked for of_split in by_split for ranked in of_split)


def held_out_figures(verdicts: Verdicts, test: Examples) -> dict[str, float]:
    """Log loss beside that of knowing only how many are relevant, and what the threshold keeps."""
    share = float(test.label_n.mean())
    constant_n = np.full(len(test.label_n), np.log(share / (1 - share)))
    return {
        "log loss": log_loss(verdicts.log_odds["test"], test.label_n, 1.0),
        "log loss of the share alone": log_loss(constant_n, test.label_n, 1.0),
        **kept_figures(verdicts.probability("test"), test.label_n, verdicts.threshold),
    }
