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

Make = Callable[[dict[str, Any], Path], Any]


def by_sft(values: dict[str, Any], folder: Path) -> Any:
    settings = SftSettings(**values)
    tokenizer = load_tokenizer(settings.model)
    return sft_trainer(settings, read_sft_data(settings, tokenizer), tokenizer, folder)


def by_trl(values: dict[str, Any], folder: Path) -> Any:
    settings = DpoSettings(**values)
    return pair_trainer(settings, prepare(settings), folder, "sigmoid")


def by_us(values: dict[str, Any], folder: Path) -> Any:
    settings = DpoSettings(**values)
    start = prepare(settings)
    return response_group_trainer(
        settings, "dpo", read_preference_data(settings, start.tokenizer, 0.0), start.tokenizer, folder
    )


def train(make: Make, values: dict[str, Any], folder: Path) -> tuple[list[dict[str, float]], set[torch.dtype]]:
    """The log of a run, and the dtypes in which inputs reached the adapter's layers."""
    trainer, dtypes = make(values, folder), set()
    for name, module in trainer.model.named_modules():
        if name.endswith("lora_A.default"):
            module.register_forward_pre_hook(lambda module, inputs: dtypes.add(inputs[0].dtype))
    trainer.train()
    dtypes_in_steps = set(dtypes)
    layers = [module for module in trainer.model.modules() if isinstance(module, BaseTunerLayer)]
    assert layers and all(getattr(layer, "cast_input_dtype_enabled", True) for layer in layers), (
        "PEFT's casts should be on again"
    )
    rows = [{name: row[name] for name in ("loss", "grad_norm")} for row in trainer.state.log_history if "loss" in row]
    return rows, dtypes_in_steps


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("make", [by_sft, by_trl, by_us])
def test_inputs_are_cast_once_and_nothing_else_changes(
    make: Make, checkpointing: bool, base: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"model": str(base), "data": str(data), "output": str(tmp_path / "run"), "max_steps": 3}
    values |= {"learning_rate": 1e-2, "logging_steps": 1, "precision": "bfloat16", "lora": LoraSettings(rank=4)}
    values |= {"gradient_checkpointing": checkpointing}
    rows, dtypes = train(make, values, tmp_path / "once")
    assert dtypes == {torch.bfloat16} and len(rows) == 3 and rows[0] != rows[2]
    for step in ("training_step", "prediction_step"):
        monkeypatch.delattr(SingleCastMixin, step)
    detour, dtypes = train(make, values, tmp_path / "twice")
    assert torch.float32 in dtypes and rows == detour
