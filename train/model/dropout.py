"""All of a model's random noise off: with it Δ would not be 0 at the first step, and the policy alone would be noisy."""

from __future__ import annotations

from typing import Any

from torch.nn.modules.dropout import _DropoutNd
from transformers import PretrainedConfig

JITTER = ("jitter_noise", "input_jitter_noise")
"""Rates of noise at a router's input. PhiMoE's `router_jitter_noise` is none: it decides on experts outside of training too."""


def without_dropout(model: Any) -> None:
    """Set every rate of dropout, layer dropout and router jitter to 0, in place: those of modules, and of configurations read at each pass."""
    for module in model.modules():
        if isinstance(module, _DropoutNd):
            module.p = 0.0
        _still(module)


def _still(holder: Any) -> None:
    for name, value in list(vars(holder).items()):
        if isinstance(value, float) and ("drop" in name or name in JITTER):
            setattr(holder, name, 0.0)
        elif isinstance(value, PretrainedConfig):
            _still(value)
