"""A few real steps of the trainer that would run, on rows of its data: seconds a token, and what activations take."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PrinterCallback, TrainerCallback

from train.model.models import device
from train.plan.memory import peak_bytes
from train.run.loop import completion_logits_only


@dataclass(frozen=True)
class Calibration:
    """What was measured on `device`: seconds of `tokens` in `steps` steps, and bytes that a forward pass of the longest batch adds."""

    device: str
    steps: int
    tokens: int
    seconds: float
    activations_bytes: int

    @property
    def seconds_a_token(self) -> float:
        """Forward, backward and the optimiser, padding included in the time alone."""
        return self.seconds / self.tokens


def chosen_rows(tokens: Sequence[int], batch: int, steps: int, draw: Any) -> list[int]:
    """Rows for a step on the longest, which memory is measured on, then for `steps` that are timed, drawn from all of them."""
    longest = sorted(range(len(tokens)), key=lambda row: -tokens[row])[:batch]
    drawn: list[int] = []
    while len(drawn) < steps * batch:
        drawn += draw.sample(range(len(tokens)), len(tokens))
    return _filled(longest, batch) + drawn[: steps * batch]


def calibrate(trainer: Any, tokens: Sequence[int], batch: int) -> Calibration:
    """Train on the rows that `trainer` has, of so many `tokens`, in their order: the first batch is measured, the others are timed."""
    trainer.args.train_sampling_strategy = "sequential"
    trainer.remove_callback(PrinterCallback)
    clock = _Clock(trainer.model)
    trainer.add_callback(clock)
    with completion_logits_only():
        trainer.train()
    timed = sum(tokens[batch:])
    return Calibration(device(), len(clock.seconds) - 1, timed, sum(clock.seconds[1:]), clock.activations_bytes)


class _Clock(TrainerCallback):  # type: ignore[misc]
    """Times each step; in the first one, notes what a forward pass adds, before there is any gradient."""

    def __init__(self, model: Any) -> None:
        self.seconds: list[float] = []
        self.activations_bytes = 0
        self._begun = 0.0
        self._measuring = ExitStack()
        self._model = model

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not self.seconds:
            self._measure()
        self._begun = _now()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.seconds.append(_now() - self._begun)
        self._measuring.close()

    def _measure(self) -> None:
        """Until the first gradient: what a forward pass adds at most, with the loss behind it."""
        peak = self._measuring.enter_context(peak_bytes(device()))

        def first_gradient(weight: Any) -> None:
            self.activations_bytes = self.activations_bytes or peak()

        for weight in self._model.parameters():
            if weight.requires_grad:
                handle = weight.register_post_accumulate_grad_hook(first_gradient)
                self._measuring.callback(handle.remove)


def _filled(rows: Sequence[int], count: int) -> list[int]:
    return [rows[place % len(rows)] for place in range(count)]


def _now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()
