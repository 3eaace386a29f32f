"""Preference training on pairs by TRL: `exo_pair` (mode-seeking), `sigmoid` (DPO) and `ipo`, the baseline and oracle of train/preference/train.py.

The reference is what the run starts from, frozen: a second copy of a whole model; the base below a new adapter; and for
an adapter that goes on training (an SFT run), TRL's own frozen copy of that adapter on the same base. So every adapter
of a chain is served on one base model.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, Literal

from datasets import Dataset
from trl import DPOConfig, DPOTrainer

from graph.checkpoints.adapter import is_adapter
from graph.encode.weights import ADAPTER_CONFIG
from train.model.dropout import without_dropout
from train.model.trial import check_still
from train.run.data import pair_dataset
from train.run.loop import TrainingInputs, lora_config, trl_arguments
from train.run.mixed_precision import CastingOnce
from train.run.settings import PreferenceSettings

Loss = Literal["exo_pair", "sigmoid", "ipo"]


class PairTrainer(CastingOnce, DPOTrainer):  # type: ignore[misc]
    """A DPOTrainer that goes on from a checkpoint also where an adapter is trained beside its frozen copy.

    A checkpoint has the learning adapter at its root and the copy in a folder; transformers 5.19 then reads the folder alone.
    """

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        if (Path(resume_from_checkpoint) / ADAPTER_CONFIG).exists():
            loaded = self.model if model is None else model
            loaded.load_adapter(resume_from_checkpoint, "default", is_trainable=True)
            loaded.set_adapter("default")


def pair_trainer(
    settings: PreferenceSettings, start: TrainingInputs, folder: Path, loss: Loss, label_smoothing: float | None = None
) -> DPOTrainer:
    """TRL's trainer of one loss, `exo_pair` with ε = `label_smoothing`; dropout off throughout."""
    without_dropout(start.model)
    check_still(start.model)
    whole = settings.lora is None and not is_adapter(settings.model)
    arguments = DPOConfig(
        **trl_arguments(settings, start.splits, folder),
        max_length=None,
        loss_type=loss,
        beta=settings.beta,
        label_smoothing=label_smoothing or 0.0,
        disable_dropout=True,
        precompute_ref_log_probs=False,
    )
    word = Dataset.from_list([{"prompt": "?", "chosen": "a", "rejected": "b"}])
    trainer = PairTrainer(
        model=start.model,
        ref_model=copy.deepcopy(start.model) if whole else None,
        args=arguments,
        train_dataset=word,
        processing_class=start.tokenizer,
        peft_config=lora_config(settings.lora),
    )
    # TRL takes texts alone, and cuts completions elsewhere than the server begins them: our tokens go in their place.
    trainer.train_dataset = pair_dataset(start.splits.train, start.tokenizer)
    trainer.eval_dataset = pair_dataset(start.splits.dev, start.tokenizer) if start.splits.dev else None
    return trainer
