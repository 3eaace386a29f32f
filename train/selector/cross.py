"""`train selector --size cross`, after the light selector has grown: pairs, the cross-encoder, the blend of both on dev.

The loss is that of both logits together, the light one given: −ln σ(light + cross) of a relevant pair, −ln σ(−light − cross) of another, so
that nothing is learned twice. Pairs are bounded for each question, hard ones first.
Legend: n examples of a split, r of them read by the cross-encoder, b pairs of a batch."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from scipy.optimize import minimize
from sentence_transformers import CrossEncoder
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
from sentence_transformers.util import batch_to_device
from torch import Tensor, nn
from transformers import EarlyStoppingCallback, PrinterCallback, set_seed

from graph.models.checkpoint import model_name
from graph.models.encoder import encoder_folder
from graph.retrieve.learned.cross import CROSS_FOLDER, Blend, blended_log_odds, most_promising, save_blend
from graph.retrieve.learned.light import Classifier
from graph.retrieve.learned.maxsim import save_model, start_model
from graph.shared.console import say
from graph.shared.ids import content_id
from graph.trees import forest_logits, probabilities
from graph.types import Ints
from train.model.load import device
from train.run.loop import ProgressCallback, quiet_libraries
from train.run.save import CHECKPOINTS, last_checkpoint
from train.run.settings import CrossSettings, SelectorSettings
from train.selector.selector_data import (
    HELD_OUT,
    CrossRecord,
    Doubles,
    Examples,
    RankingFigures,
    RelevanceDataset,
    Verdicts,
    average_precisions,
)
from train.shared.calibrate import TEMPERATURES, log_loss, threshold_for


def texts_of(datasets: Sequence[RelevanceDataset], split: str) -> list[tuple[str, str]]:
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


WEIGHTS, BASES = (0.0, 10.0), (-20.0, 20.0)


def fit_blend(light_r: Doubles, cross_r: Doubles, label_r: Ints, depth: int) -> Blend:
    """The blend of `depth` propositions, its threshold still 0; weight 0 where reading does not help.

    In the two logits σ((light + weight · cross + base) / temperature) is a logistic regression, so the loss has one lowest point.
    """

    def loss(at: Doubles) -> float:
        weight, base, log_temperature = at
        return log_loss(light_r + weight * cross_r + base, label_r, float(np.exp(log_temperature)))

    low, high = np.log(TEMPERATURES)
    found = minimize(loss, np.array([1.0, 0.0, 0.0]), method="L-BFGS-B", bounds=(WEIGHTS, BASES, (low, high)))
    weight, base, log_temperature = found.x.tolist()
    return Blend(weight, base, float(np.exp(log_temperature)), threshold=0.0, depth=depth)


Pairs = Sequence[tuple[str, str]]
MAP = "MAP"
HEAD_PACE, WEIGHT_DECAY = 10.0, 0.01
WINDOW_BATCHES = 20
"""Pairs are sorted by length within so many shuffled batches: little padding, and still another order in every epoch."""


@dataclass(frozen=True)
class PairSet:
    """Pairs to learn from: texts, labels and the light selector's logits."""

    pairs_r: Pairs
    label_r: Ints
    light_r: Doubles


class ResidualLoss(nn.Module):
    """Mean over a batch of the logistic loss of light + cross; the labels that the trainer hands over are [b, (label, light)]."""

    def __init__(self, model: CrossEncoder) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: list[list[str]], labels: list[Tensor], **_: Any) -> Tensor:
        pairs = list(zip(inputs[0], inputs[1], strict=True))
        batch = batch_to_device(self.model.preprocess(pairs), self.model.device)
        cross_b = self.model(batch)["scores"].view(-1)
        label_b, light_b = torch.stack(labels).to(cross_b).unbind(1)
        return residual_loss(cross_b, light_b, label_b)

    def get_config_dict(self) -> dict[str, Any]:
        """Nothing to tell: the trainer's model card asks."""
        return {}


def residual_loss(cross_b: Tensor, light_b: Tensor, label_b: Tensor) -> Tensor:
    """−mean [y ln σ(z) + (1 − y) ln(1 − σ(z))] with z = light + cross."""
    return nn.functional.binary_cross_entropy_with_logits(light_b + cross_b, label_b)


class LengthGroupedBatchSampler(DefaultBatchSampler):  # type: ignore[misc]
    """Batches of pairs of like length, shuffled anew in every epoch by its seed."""

    def __init__(self, dataset: Dataset, batch_size: int, drop_last: bool, **options: Any) -> None:
        super().__init__(range(len(dataset)), batch_size=batch_size, drop_last=drop_last, **options)
        columns = (dataset["question"], dataset["proposition"])
        self.length_r = np.array([len(a) + len(b) for a, b in zip(*columns, strict=True)])

    def __iter__(self) -> Iterator[list[int]]:
        random = np.random.default_rng([self.seed, self.epoch])
        order_r = random.permutation(len(self.length_r))
        window = WINDOW_BATCHES * self.batch_size
        batches: list[list[int]] = []
        for first in range(0, len(order_r), window):
            part = order_r[first : first + window]
            part = part[np.argsort(self.length_r[part], kind="stable")]
            batches += [
                part[place : place + self.batch_size].tolist() for place in range(0, len(part), self.batch_size)
            ]
        random.shuffle(batches)
        return iter(batches)


class DevRanking(BaseEvaluator):  # type: ignore[misc]
    """Mean average precision on dev, of the cross-encoder's logits put to use by `measure`."""

    def __init__(self, pairs_r: Pairs, measure: Callable[[Doubles], float]) -> None:
        super().__init__()
        self.pairs_r, self.measure = pairs_r, measure
        self.primary_metric = MAP

    def __call__(self, model: CrossEncoder, *_: Any, **__: Any) -> dict[str, float]:
        return {MAP: self.measure(read_pairs(model, self.pairs_r))}


def read_pairs(model: CrossEncoder, pairs_r: Pairs) -> Doubles:
    """The logit of each pair: [r]."""
    training = model.training
    model.eval()
    logits_r = model.predict(list(pairs_r), batch_size=64, show_progress_bar=False)
    model.train(training)
    return np.asarray(logits_r, np.float64)


def train_cross(
    start: Path,
    train: PairSet,
    dev_pairs: Pairs,
    measure: Callable[[Doubles], float],
    settings: SelectorSettings,
    folder: Path,
) -> tuple[CrossEncoder, int]:
    """The cross-encoder with the highest dev figure, and the step that it is from; an interrupted run in `folder` goes on."""
    cross = settings.cross
    quiet_libraries()
    set_seed(settings.seed)
    made_from = {
        "pairs": content_id(*(text for pair in train.pairs_r for text in pair)),
        "start": model_name(str(start)),
    }
    checkpoint = last_checkpoint(folder, settings, made_from)
    model = start_model(start, cross.max_length_tokens, device())
    model[0].model.get_input_embeddings().requires_grad_(False)
    rows = {
        "question": [question for question, _ in train.pairs_r],
        "proposition": [proposition for _, proposition in train.pairs_r],
        "label": np.stack([train.label_r, train.light_r], axis=1).astype(np.float32).tolist(),
    }
    trainer = CrossEncoderTrainer(
        model=model,
        args=cross_trainer_arguments(cross, settings.seed, folder),
        train_dataset=Dataset.from_dict(rows),
        loss=ResidualLoss(model),
        evaluator=DevRanking(dev_pairs, measure),
        callbacks=[EarlyStoppingCallback(cross.patience_evaluations), ProgressCallback("cross-encoder")],
        optimizers=(optimizer_of(model, cross), None),
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train(resume_from_checkpoint=checkpoint)
    return model, int(trainer.state.best_global_step or trainer.state.global_step)


def optimizer_of(model: CrossEncoder, settings: CrossSettings) -> torch.optim.Optimizer:
    """AdamW; the head, which is new, learns HEAD_PACE times as fast. The word vectors stay as they are."""
    encoder = [weight for weight in model[0].parameters() if weight.requires_grad]
    groups = [
        {"params": encoder, "lr": settings.learning_rate},
        {"params": list(model[1].parameters()), "lr": HEAD_PACE * settings.learning_rate},
    ]
    return torch.optim.AdamW(groups, weight_decay=WEIGHT_DECAY)


def cross_trainer_arguments(settings: CrossSettings, seed: int, folder: Path) -> CrossEncoderTrainingArguments:
    """A checkpoint at every measurement on dev; the best one is the run's."""
    return CrossEncoderTrainingArguments(
        output_dir=str(folder / CHECKPOINTS),
        num_train_epochs=settings.epochs,
        max_steps=settings.max_steps or -1,
        per_device_train_batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        warmup_steps=settings.warmup_share,
        lr_scheduler_type="linear",
        batch_sampler=LengthGroupedBatchSampler,
        eval_strategy="steps",
        eval_steps=settings.eval_steps,
        save_strategy="steps",
        save_steps=settings.eval_steps,
        save_total_limit=1,
        load_best_model_at_end=True,
        metric_for_best_model=f"eval_{MAP}",
        greater_is_better=True,
        logging_steps=settings.logging_steps,
        seed=seed,
        report_to="none",
        disable_tqdm=True,
        use_cpu=device() == "cpu",
        dataloader_pin_memory=device() != "cpu",
    )


def fit_cross(
    light: Classifier,
    datasets: Sequence[RelevanceDataset],
    splits: Mapping[str, Examples],
    settings: SelectorSettings,
    folder: Path,
    light_ranked: tuple[RankingFigures, ...],
) -> tuple[Verdicts, CrossRecord]:
    """Train, blend and save into `folder` what makes the light selector in it a cross one; how it ranks, and how it came to be."""
    light_logits = {split: forest_logits(light.forest, examples.features_nF) for split, examples in splits.items()}
    texts = {split: texts_of(datasets, split) for split in splits}
    rows_r = training_rows(splits["train"], light_logits["train"], settings.cross, settings.seed)
    train = PairSet(pick_rows(texts["train"], rows_r), splits["train"].label_n[rows_r], light_logits["train"][rows_r])
    dev = DevRows(splits["dev"], light_logits["dev"], light, settings.cross.eval_depth)
    say(f"the cross-encoder learns from {len(rows_r):,} pairs")
    start = encoder_folder(settings.cross.start)
    model, best_step = train_cross(
        start, train, pick_rows(texts["dev"], dev.rows_r), dev.mean_precision, settings, folder
    )

    read = {
        split: read_rows_of(splits[split].question_n, light_logits[split], settings.cross.depth) for split in HELD_OUT
    }
    cross = {split: read_pairs(model, pick_rows(texts[split], rows)) for split, rows in read.items()}
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


def pick_rows(texts: Pairs, rows_r: Ints) -> Pairs:
    """The pairs in the given places."""
    return [texts[row] for row in rows_r.tolist()]


def save_cross(folder: Path, model: CrossEncoder, blend: Blend) -> None:
    """The cross-encoder's own folder, and the blend."""
    shutil.rmtree(folder / CROSS_FOLDER, ignore_errors=True)
    save_model(model, folder / CROSS_FOLDER)
    save_blend(folder, blend)
