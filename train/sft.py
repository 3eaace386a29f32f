"""Supervised fine-tuning on the chosen answers: teaches the form, and gives preference training its reference."""

from __future__ import annotations

from pathlib import Path

from trl import SFTConfig, SFTTrainer

from train.run.data import chosen_side, sft_dataset
from train.run.loop import TrainingInputs, lora_config, prepare, run_and_save, run_folder, trl_arguments
from train.run.mixed_precision import CastingOnce
from train.run.settings import SftSettings
from train.shared.types import RunRecord


class ChosenTrainer(CastingOnce, SFTTrainer):  # type: ignore[misc]
    """TRL's trainer, with the casts of ours."""


def train_sft(settings: SftSettings) -> RunRecord:
    """From settings to a finished run at `settings.output`; UserError before the first step for bad input."""
    start = prepare(settings, chosen_side)
    with run_folder(settings, "sft") as folder:
        return run_and_save(sft_trainer(settings, start, folder), "sft", settings, folder)


def sft_trainer(settings: SftSettings, start: TrainingInputs, folder: Path) -> SFTTrainer:
    """TRL's trainer with the loss on the completion alone, its end token included."""
    return ChosenTrainer(
        model=start.model,
        args=SFTConfig(
            **trl_arguments(settings, start.splits, folder), max_length=None, completion_only_loss=True, packing=False
        ),
        train_dataset=sft_dataset(start.splits.train, start.tokenizer),
        eval_dataset=sft_dataset(start.splits.dev, start.tokenizer) if start.splits.dev else None,
        processing_class=start.tokenizer,
        peft_config=lora_config(settings.lora),
    )
