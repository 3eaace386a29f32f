"""What `accelerate launch` asked for, held against what accelerate does."""

from __future__ import annotations

import os

from graph.shared.errors import UserError

DEALT_OUT = {"FSDP": "ACCELERATE_USE_FSDP", "DEEPSPEED": "ACCELERATE_USE_DEEPSPEED"}
"""Kinds of launch that deal a model out among processes, and the variable by which each is asked for."""


def check_launch(runs_as: str) -> None:
    """UserError where a model was to be dealt out, and every process keeps it whole: on CPUs accelerate does so, without a word."""
    for kind, variable in DEALT_OUT.items():
        if os.environ.get(variable, "").lower() == "true" and runs_as != kind:
            found = f"{kind} was asked for, and accelerate runs {runs_as}"
            raise UserError(
                found, "GPUs, which alone it deals a model out to", "launch with configs/accelerate/ddp.yaml"
            )
