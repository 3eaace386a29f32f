"""The noun of `modegraph runs`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

State = Literal["finished", "running", "stopped"]


@dataclass(frozen=True)
class FoundRun:
    """A run as its folder tells it. `name` is the folder below the one that was asked for, `stage` what made it (sft, ms, eval, …).

    `step` of `steps` is how far one is that has not finished; `seconds` is what a finished one took, `seconds_left` what an unfinished
    one has ahead; `ended` is when its last file was written (seconds since 1970).
    """

    name: str
    stage: str
    state: State
    ended: float
    settings: Mapping[str, Any]
    figures: Mapping[str, float]
    seconds: float | None = None
    step: int | None = None
    steps: int | None = None
    seconds_left: float | None = None
