"""A trial of a model's log-probabilities on a few tokens before the first step of training; an unsuitable model is rejected, with the reason.

A model may attend to later tokens (BERT without a decoder), ignore arguments that the trainers pass, or draw random numbers in training; such a
model would silently be trained on a different objective. The reference is the formula itself: every token predicted alone from its prefix.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from graph.errors import UserError, first_line
from train.model.logps import unwrapped
from train.model.packing import TRIAL_GROUPS, TokenizedGroup, gap_beyond_rounding, plain_logps

ERRORS = (AttributeError, IndexError, NotImplementedError, RuntimeError, TypeError, ValueError)
"""Errors in a trial that mean that the model is unsuitable."""


def check_model(model: Any) -> None:
    """UserError for a model whose plain layout does not give Σ_t log π(y_t | x, y_<t); gradients stay enabled, because quantised layers may need them."""
    with _trial_of(model):
        gap = gap_beyond_rounding(model, plain_logps(model.eval(), TRIAL_GROUPS), token_by_token(model, TRIAL_GROUPS))
    if math.isnan(gap):
        reason = "its log-probabilities are not numbers"
        raise _unsuitable(model, reason, "intact weights", "copy or save the model again")
    if gap:
        reason = f"its log-probabilities change by {gap:.3g} nats with later tokens or other rows of a batch"
        raise _unsuitable(model, reason)


def check_deterministic(model: Any) -> None:
    """UserError if the log-probabilities change between evaluation and training with dropout off, for example by random numbers."""
    with _trial_of(model):
        expected = plain_logps(model.eval(), TRIAL_GROUPS)
        gap = max(gap_beyond_rounding(model, expected, plain_logps(model.train(), TRIAL_GROUPS)) for _ in range(2))
    if gap:
        raise _unsuitable(
            model,
            f"its log-probabilities differ by {gap:.3g} nats between evaluation and training, with all dropout off",
        )


@contextmanager
def _trial_of(model: Any) -> Iterator[None]:
    training = model.training
    try:
        yield
    except ERRORS as problem:
        raise _unsuitable(model, f"a trial of it failed: {type(problem).__name__}: {first_line(problem)}") from None
    finally:
        model.train(training)


def token_by_token(model: Any, groups: Sequence[TokenizedGroup]) -> Tensor:
    """Each response's log-probability, with every token predicted by a separate forward pass over its prefix: float32[R]."""
    sums = []
    for group in groups:
        for response in group.responses:
            token_logps = []
            for position, token in enumerate(response):
                ids_1T = torch.tensor([[*group.prompt, *response[:position]]], device=unwrapped(model).device)
                logits_V = model(input_ids=ids_1T, use_cache=False).logits[0, -1].float()
                token_logps.append(logits_V.log_softmax(dim=-1)[token])
            sums.append(torch.stack(token_logps).sum())
    return torch.stack(sums)


def _unsuitable(
    model: Any, reason: str, expected: str = "a causal language model", remedy: str = "choose a model of another type"
) -> UserError:
    kind = unwrapped(model).config.model_type
    return UserError(f"a model of type {kind!r}: {reason}", expected, remedy)
