"""Preference training on pairs: mode-seeking (TRL's `exo_pair`) and DPO (`sigmoid`), K = 2 of train/losses.py.

The reference is what the run starts from, frozen: a second copy of a whole model; the base below a new adapter; and for
an adapter that goes on training (an SFT run), TRL's own frozen copy of that adapter on the same base. So every adapter
of a chain is served on one base model.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Literal

from trl import DPOConfig, DPOTrainer

from train.data import both_sides, pair_dataset
from train.loop import Start, lora_config, prepare, run_and_save, trainer_arguments
from train.models import is_adapter
from train.save import fresh_folder
from train.settings import DpoSettings, MsSettings, PairSettings
from train.types import RunRecord


def train_ms(settings: MsSettings) -> RunRecord:
    """Mode-seeking run from settings to a finished run at `settings.output`; UserError before the first step."""
    return _train_pairs(settings, "ms", settings.label_smoothing)


def train_dpo(settings: DpoSettings) -> RunRecord:
    """DPO run from settings to a finished run at `settings.output`; UserError before the first step."""
    return _train_pairs(settings, "dpo", None)


def _train_pairs(settings: PairSettings, stage: Literal["ms", "dpo"], label_smoothing: float | None) -> RunRecord:
    start = prepare(settings, both_sides)
    with fresh_folder(Path(settings.output)) as folder:
        trainer = pair_trainer(settings, start, folder, label_smoothing)
        return run_and_save(trainer, stage, settings, folder, settings.beta, label_smoothing)


def pair_trainer(settings: PairSettings, start: Start, folder: Path, label_smoothing: float | None) -> DPOTrainer:
    """TRL's trainer for `exo_pair` with ε = `label_smoothing`, or for `sigmoid` without one; dropout off throughout."""
    whole = settings.lora is None and not is_adapter(settings.model)
    arguments = DPOConfig(
        **trainer_arguments(settings, folder),
        loss_type="sigmoid" if label_smoothing is None else "exo_pair",
        beta=settings.beta,
        label_smoothing=label_smoothing or 0.0,
        disable_dropout=True,
        precompute_ref_log_probs=False,
    )
    return DPOTrainer(
        model=start.model,
        ref_model=copy.deepcopy(start.model) if whole else None,
        args=arguments,
        train_dataset=pair_dataset(start.splits.train),
        eval_dataset=pair_dataset(start.splits.dev) if start.splits.dev else None,
        processing_class=start.tokenizer,
        peft_config=lora_config(settings.lora),
    )
