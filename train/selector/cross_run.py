"""`train selector --size cross`, after the light selector has grown: pairs, the cross-encoder, the blend of both on dev.

Legend: n examples of a split, r of them read by the cross-encoder.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from sentence_transformers import CrossEncoder

from graph.encode.encoder import encoder_folder
from graph.retrieve.learned.classifier import Classifier, probabilities
from graph.retrieve.learned.cross import CROSS_FOLDER, Blend, blended_log_odds, save_blend
from graph.retrieve.learned.forest import forest_logits
from graph.retrieve.learned.maxsim import save_model
from graph.shared.console import say
from graph.shared.types import Ints
from train.selector.blend import fit_blend
from train.selector.cross import Pairs, PairSet, read_pairs, train_cross
from train.selector.data import Dataset
from train.selector.pairs import read_rows_of, texts_of, training_rows
from train.selector.ranking import average_precisions
from train.selector.settings import SelectorSettings
from train.selector.types import HELD_OUT, CrossRecord, Doubles, Examples, Ranked, Verdicts
from train.shared.calibrate import threshold_for


def fit_cross(
    light: Classifier,
    datasets: Sequence[Dataset],
    splits: Mapping[str, Examples],
    settings: SelectorSettings,
    folder: Path,
    light_ranked: tuple[Ranked, ...],
) -> tuple[Verdicts, CrossRecord]:
    """Train, blend and save into `folder` what makes the light selector in it a cross one; how it ranks, and how it came to be."""
    light_logits = {split: forest_logits(light.forest, examples.features_nF) for split, examples in splits.items()}
    texts = {split: texts_of(datasets, split) for split in splits}
    rows_r = training_rows(splits["train"], light_logits["train"], settings.cross, settings.seed)
    train = PairSet(picked(texts["train"], rows_r), splits["train"].label_n[rows_r], light_logits["train"][rows_r])
    dev = DevRows(splits["dev"], light_logits["dev"], light, settings.cross.eval_depth)
    say(f"the cross-encoder learns from {len(rows_r):,} pairs")
    start = encoder_folder(settings.cross.start)
    model, best_step = train_cross(start, train, picked(texts["dev"], dev.rows_r), dev.mean_precision, settings, folder)

    read = {
        split: read_rows_of(splits[split].question_n, light_logits[split], settings.cross.depth) for split in HELD_OUT
    }
    cross = {split: read_pairs(model, picked(texts[split], rows)) for split, rows in read.items()}
    blend = fit_blend(
        light_logits["dev"][read["dev"]], cross["dev"], splits["dev"].label_n[read["dev"]], settings.cross.depth
    )
    log_odds = {
        split: blended_log_odds(light_logits[split], light.temperature, read[split], cross[split], blend)
        for split in HELD_OUT
    }
    threshold = threshold_for(probabilities(log_odds["dev"], 1.0), splits["dev"].label_n, settings.target_recall)
    save_cross(folder, model, replace(blend, threshold=threshold))
    record = CrossRecord(
        start=settings.cross.start,
        pairs=min(len(rows_r), best_step * settings.cross.batch_size),
        best_step=best_step,
        weight=blend.weight,
        base=blend.base,
        depth=blend.depth,
        light_ranked=light_ranked,
    )
    return Verdicts(blend.temperature, threshold, log_odds), record


class DevRows:
    """The dev examples that are read anew at every measurement during training, and the figure that comes of it."""

    def __init__(self, dev: Examples, light_n: Doubles, light: Classifier, depth: int) -> None:
        own = np.flatnonzero(dev.own_n)
        self.rows_r = own[read_rows_of(dev.question_n[own], light_n[own], depth)]
        self._dev, self._light_n, self._temperature = dev, light_n, light.temperature

    def mean_precision(self, cross_r: Doubles) -> float:
        """MAP with the best blend of the light logits and these."""
        light_r, label_r = self._light_n[self.rows_r], self._dev.label_n[self.rows_r]
        blend = fit_blend(light_r, cross_r, label_r, depth=len(cross_r))
        odds_n = blended_log_odds(self._light_n, self._temperature, self.rows_r, cross_r, blend)
        return float(average_precisions(self._dev, odds_n).mean())


def picked(texts: Pairs, rows_r: Ints) -> Pairs:
    """The pairs in the given places."""
    return [texts[row] for row in rows_r.tolist()]


def save_cross(folder: Path, model: CrossEncoder, blend: Blend) -> None:
    """The cross-encoder's own folder, and the blend."""
    shutil.rmtree(folder / CROSS_FOLDER, ignore_errors=True)
    save_model(model, folder / CROSS_FOLDER)
    save_blend(folder, blend)
