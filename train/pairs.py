"""Preference training on pairs by TRL: `exo_pair` (mode-seeking) and `sigmoid` (DPO), the baseline and oracle of train/preference.py.

The reference is what the run starts from, frozen: a second copy of a whole model; the base below a new adapter; and for
an adapter that goes on training (an SFT run), TRL's own frozen copy of that adapter on the same base. So every adapter
of a chain is served on one base model.
"""

from __future__ import annotations

import copy
from pathlib import Path

from trl import DPOConfig, DPOTrainer

from train.data import pair_dataset
from train.loop import Start, lora_config, trainer_arguments
from train.models import is_adapter
from train.settings import PreferenceSettings


def pair_trainer(settings: PreferenceSettings, start: Start, folder: Path, label_smoothing: float | None) -> DPOTrainer:
    """TRL's trainer for `exo_pair` with ε = `label_smoothing`, or for `sigmoid` without one; dropout off throughout."""
    whole = settings.lora is None and not is_adapter(settings.model)
    arguments = DPOConfig(
        **trainer_arguments(settings, folder),
        max_length=None,
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
