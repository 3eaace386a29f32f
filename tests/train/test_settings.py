"""Invalid settings are refused; the error states the name and the value of the setting."""

from typing import Any

import pytest
import torch

from graph.config import parse_settings
from graph.errors import UserError
from train.run.settings import DpoSettings, MsSettings, SelectorSettings, SftSettings, TinySettings, VerifierSettings

REQUIRED = {"model": "m", "data": "d", "output": "o"}


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        (SftSettings, {"learning_rate": 0}, "learning_rate = 0"),
        (SftSettings, {"learning_rate": -1e-5}, "learning_rate = -1e-05"),
        (SftSettings, {"epochs": 0}, "epochs = 0"),
        (SftSettings, {"batch_size": 0}, "batch_size = 0"),
        (SftSettings, {"max_steps": 0}, "max_steps = 0"),
        (SftSettings, {"warmup_share": 1.0}, "warmup_share = 1.0"),
        (SftSettings, {"precision": "float16"}, "precision = 'float16': expected 'float32', 'bfloat16' or 'auto'"),
        (SftSettings, {"lora": {"rank": 0}}, "lora.rank = 0"),
        (SftSettings, {"seed": -1}, "seed = -1. Expected greater than or equal to 0"),
        (SftSettings, {"seed": 2**32}, "seed = 4294967296. Expected less than 4294967296"),
        (DpoSettings, {"beta": 0}, "beta = 0"),
        (MsSettings, {"label_smoothing": 0}, "label_smoothing = 0"),
        (MsSettings, {"label_smoothing": 0.5}, "label_smoothing = 0.5"),
        (MsSettings, {"rewards": {"correct": 1.0, "supported": "much"}}, "rewards.supported = 'much'"),
        (MsSettings, {"rewards": {"supported": float("nan")}}, "rewards.supported = nan"),
        (DpoSettings, {"rewards": {"correct": 0, "supported": 0}}, "all weights are 0"),
        (DpoSettings, {"rewards": {}}, "all weights are 0"),
        (MsSettings, {"label_smoothng": 0.1}, "Did you mean 'label_smoothing'"),
        (DpoSettings, {"label_smoothing": 0.5}, "label_smoothing = 0.5"),
        (SftSettings, {"beta": 0.1}, "unknown key 'beta'"),
    ],
)
def test_the_error_for_an_invalid_setting_names_it(
    kind: type[SftSettings], change: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError) as problem:
        parse_settings(kind, {**REQUIRED, **change}, "run.yaml")
    assert message in str(problem.value)


@pytest.mark.parametrize(("supported", "precision"), [(True, "bfloat16"), (False, "float32")])
def test_auto_precision_is_bfloat16_where_the_machine_computes_in_it(
    supported: bool, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("train.run.settings.computes_in_bfloat16", lambda: supported)
    settings = parse_settings(SftSettings, {**REQUIRED, "precision": "auto"}, "run.yaml")
    assert settings.precision == ("bfloat16" if torch.cuda.is_available() else precision)


@pytest.mark.parametrize(
    ("kind", "source"), [(TinySettings, "texts"), (SelectorSettings, "data"), (VerifierSettings, "data")]
)
@pytest.mark.parametrize("seed", [-1, 2**32])
def test_seeds_that_numpy_refuses_are_refused_for_small_models_too(kind: Any, source: str, seed: int) -> None:
    with pytest.raises(UserError, match=f"seed = {seed}"):
        parse_settings(kind, {source: "t", "output": "o", "seed": seed}, "small.yaml")


def test_the_error_for_a_missing_output_names_it() -> None:
    with pytest.raises(UserError, match="'output' is missing"):
        parse_settings(SftSettings, {"model": "m", "data": "d"}, "run.yaml")
