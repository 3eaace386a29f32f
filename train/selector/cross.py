"""The cross-encoder of a selector, trained by sentence-transformers on what the light selector's logits leave unexplained.

The loss is that of both logits together, the light one given: −ln σ(light + cross) of a relevant pair, −ln σ(−light − cross) of
another. So nothing is learned twice.

Legend: r pairs, b pairs of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from numpy.typing import NDArray
from sentence_transformers import CrossEncoder
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
from sentence_transformers.util import batch_to_device
from torch import Tensor, nn
from transformers import EarlyStoppingCallback, PrinterCallback, set_seed

from graph.encode.weights import model_name
from graph.retrieve.learned.maxsim import start_model
from graph.shared.ids import content_id
from graph.shared.types import Ints
from train.model.models import device
from train.run.loop import ProgressCallback, quiet_libraries
from train.run.save import CHECKPOINTS, last_checkpoint
from train.selector.settings import CrossSettings, SelectorSettings

Doubles = NDArray[np.float64]
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
        args=trainer_arguments(cross, settings.seed, folder),
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


def trainer_arguments(settings: CrossSettings, seed: int, folder: Path) -> CrossEncoderTrainingArguments:
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
