"""Whether training can have a model's log-probabilities: tried on a few tokens before the first step, and refused by name.

A model may read what comes later (BERT made no decoder), leave out what the trainers ask of it, or draw random numbers while it learns;
each would train on something else without a word. The formula is the judge: every token alone behind all that stands before it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from graph.errors import UserError
from train.model.logps import unwrapped
from train.model.packing import TRIAL_GROUPS, TokenizedGroup, gap_beyond_rounding, plain_logps

ERRORS = (AttributeError, IndexError, NotImplementedError, RuntimeError, TypeError, ValueError)


def check_model(model: Any) -> None:
    """UserError for a model whose plain layout is not Σ_t log π(y_t | x, y_<t); gradients are left on, as quantised layers may need them."""
    with _trial_of(model):
        gap = gap_beyond_rounding(model, plain_logps(model.eval(), TRIAL_GROUPS), token_by_token(model, TRIAL_GROUPS))
    if math.isnan(gap):
        raise _refused(model, "its log-probabilities are not numbers", "whole weights", "copy or save the model again")
    if gap:
        raise _refused(
            model, f"its log-probabilities change by {gap:.3g} nats with what stands behind or beside a token"
        )


def check_still(model: Any) -> None:
    """UserError for a model that draws random numbers while it learns, dropout being off: its Δ would be noise."""
    with _trial_of(model):
        still = plain_logps(model.eval(), TRIAL_GROUPS)
        gap = max(gap_beyond_rounding(model, still, plain_logps(model.train(), TRIAL_GROUPS)) for _ in range(2))
    if gap:
        raise _refused(model, f"its log-probabilities are off by {gap:.3g} nats while it learns, with all dropout off")


@contextmanager
def _trial_of(model: Any) -> Iterator[None]:
    training = model.training
    try:
        yield
    except ERRORS as problem:
        reason = (str(problem).strip() or "no reason given").splitlines()[0]
        raise _refused(model, f"a trial of it failed: {type(problem).__name__}: {reason}") from None
    finally:
        model.train(training)


def token_by_token(model: Any, groups: Sequence[TokenizedGroup]) -> Tensor:
    """Each response's tokens, one at a time, behind all that stands before them: float32[R]."""
    sums = []
    for group in groups:
        for response in group.responses:
            shares = []
            for place, token in enumerate(response):
                ids_1T = torch.tensor([[*group.prompt, *response[:place]]], device=unwrapped(model).device)
                logits_V = model(input_ids=ids_1T, use_cache=False).logits[0, -1].float()
                shares.append(logits_V.log_softmax(dim=-1)[token])
            sums.append(torch.stack(shares).sum())
    return torch.stack(sums)


def _refused(
    model: Any, why: str, expected: str = "a causal language model", remedy: str = "choose a model of another type"
) -> UserError:
    kind = unwrapped(model).config.model_type
    return UserError(f"a model of type {kind!r}: {why}", expected, remedy)
