"""Adapters under autocast: inputs are cast once, and losses equal, bit for bit, those with PEFT's additional casts to float32."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft.tuners.tuners_utils import BaseTunerLayer

from train.model.load import load_tokenizer
from train.preference.preference import pair_trainer, read_preference_data, response_group_trainer
from train.run.loop import SingleCastMixin, prepare
from train.run.settings import DpoSettings, LoraSettings, SftSettings
from train.sft import read_sft_data, sft_trainer

MakeTrainer = Callable[[dict[str, Any], Path], Any]


def sft_trainer_of(values: dict[str, Any], folder: Path) -> Any:
    settings = SftSettings(**values)
    tokenizer = load_tokenizer(settings.model)
    return sft_trainer(settings, read_sft_data(settings, tokenizer), tokenizer, folder)


def trl_dpo_trainer_of(values: dict[str, Any], folder: Path) -> Any:
    settings = DpoSettings(**values)
    return pair_trainer(settings, prepare(settings), folder, "sigmoid")


def our_dpo_trainer_of(values: dict[str, Any], folder: Path) -> Any:
    settings = DpoSettings(**values)
    start = prepare(settings)
    return response_group_trainer(
        settings, "dpo", read_preference_data(settings, start.tokenizer), start.tokenizer, folder
    )


def train_recording_dtypes(
    make_trainer: MakeTrainer, values: dict[str, Any], folder: Path
) -> tuple[list[dict[str, float]], set[torch.dtype]]:
    """The log of a run with its dev loss as the last row, and the dtypes in which inputs reached the adapter's layers."""
    trainer, dtypes = make_trainer(values, folder), set()
    for name, module in trainer.model.named_modules():
        if name.endswith("lora_A.default"):
            module.register_forward_pre_hook(lambda module, inputs: dtypes.add(inputs[0].dtype))
    trainer.train()
    dev_loss = trainer.evaluate()["eval_loss"]
    layers = [module for module in trainer.model.modules() if isinstance(module, BaseTunerLayer)]
    assert layers and all(getattr(layer, "cast_input_dtype_enabled", True) for layer in layers), (
        "PEFT's casts of inputs should be on again after training and evaluation"
    )
    rows = [{name: row[name] for name in ("loss", "grad_norm")} for row in trainer.state.log_history if "loss" in row]
    return [*rows, {"loss": dev_loss}], dtypes


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("make_trainer", [sft_trainer_of, trl_dpo_trainer_of, our_dpo_trainer_of])
def test_inputs_are_cast_once_and_nothing_else_changes(
    make_trainer: MakeTrainer,
    checkpointing: bool,
    base: Path,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = {"model": str(base), "data": str(data), "output": str(tmp_path / "run"), "max_steps": 3}
    values |= {"learning_rate": 1e-2, "logging_steps": 1, "precision": "bfloat16", "lora": LoraSettings(rank=4)}
    values |= {"gradient_checkpointing": checkpointing}
    rows, dtypes = train_recording_dtypes(make_trainer, values, tmp_path / "once")
    assert dtypes == {torch.bfloat16} and len(rows) == 4 and rows[0] != rows[2]
    for method in ("training_step", "evaluation_loop"):
        monkeypatch.delattr(SingleCastMixin, method)
    rows_with_casts, dtypes = train_recording_dtypes(make_trainer, values, tmp_path / "twice")
    assert torch.float32 in dtypes and rows == rows_with_casts
