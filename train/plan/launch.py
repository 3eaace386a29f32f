"""How many processes train, and what they deal out among them: read from the file that `accelerate launch` takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graph.shared.config import read_yaml
from graph.shared.errors import UserError

PARTS = ("optimiser", "gradients", "weights")
"""In the order in which ZeRO's stages deal them out (Rajbhandari et al. 2020, §5)."""


@dataclass(frozen=True)
class Launch:
    """`processes` with a batch each, and the parts of memory of which each holds its share alone."""

    processes: int = 1
    dealt_out: tuple[str, ...] = ()


def read_launch(file: Path) -> Launch:
    """What a configuration of accelerate says; UserError for a kind whose memory is not known here."""
    values = read_yaml(file)
    kind, processes = str(values.get("distributed_type", "NO")).upper(), values.get("num_processes", 1)
    if not isinstance(processes, int) or processes < 1:
        raise UserError(f"{file}: num_processes is {processes!r}", "a number from 1 on", "fix the file")
    if kind in ("NO", "MULTI_CPU", "MULTI_GPU"):
        return Launch(processes)
    if kind == "FSDP":
        return Launch(processes, PARTS)
    if kind == "DEEPSPEED":
        return Launch(processes, PARTS[: _stage(values)])
    raise UserError(
        f"{file}: distributed_type is {kind}", "NO, MULTI_CPU, MULTI_GPU, FSDP or DEEPSPEED", "fix the file"
    )


def _stage(values: dict[str, Any]) -> int:
    return int((values.get("deepspeed_config") or {}).get("zero_stage", 2))
