"""Refusals anchored at the initial model: training changes how often a model refuses only as far as the prompts show whether they can be answered.

With the plain loss, the share of refusals among the rows determines how often a model refuses, even if it cannot tell when it should
(docs/log.md, "Refusals anchored at the initial model"). Here an answer's loss is −log π(y | x, no refusal), given
that its first token is not that of a refusal. A second term trains the decision to refuse: with m the log-odds of a refusal's first token after the
prompt, and m_0 those of the initial model, it is the logistic loss of m − m_0 for rows that refuse and of −(m − m_0) for rows that answer, with equal
total weight for both kinds of rows. If the prompts do not distinguish the kinds, this term is minimal at m = m_0, whatever the shares of the kinds.
(This is a logistic regression with an offset; m − m_0 is DPO's log-ratio of one token, minus that of its complement.)

Legend: R rows of some groups, in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from graph.answer.prompt import NOT_FOUND
from graph.errors import UserError
from train.model.logps import unwrapped
from train.model.packing import LogpsOf, TokenizedGroup

MAX_LOG_PROBABILITY = -1e-6
"""The largest log-probability of a refusal: at 0, to which float32 may round it, log(1 − p) would be −∞."""


def with_refusals(group: TokenizedGroup, token: int) -> TokenizedGroup:
    """A group with one more response per row: after the row's prompt, the first token of a refusal.

    >>> with_refusals(TokenizedGroup((1, 2), ((3, 8, 9), (4, 9)), (1, 1)), 7).responses
    ((3, 8, 9), (4, 9), (3, 7), (4, 7))
    """
    refusals = tuple(
        (*response[:context], token) for response, context in zip(group.responses, group.context_tokens, strict=True)
    )
    return TokenizedGroup(group.prompt, group.responses + refusals, group.context_tokens * 2)


def refusal_signs(groups: Sequence[TokenizedGroup], refusal: Sequence[int]) -> Tensor:
    """1 for a row that refuses, −1 for one that answers, 0 for one that only begins like a refusal: float32[R]. The groups are made by `with_refusals`."""
    found = []
    for group in groups:
        rows = len(group.responses) // 2
        for response, context in zip(group.responses[:rows], group.context_tokens, strict=False):
            completion = response[context:]
            begins_alike = completion[0] == refusal[0]
            found.append(float(completion == tuple(refusal)) if begins_alike else -1.0)
    return torch.tensor(found)


def check_refusals(groups: Sequence[TokenizedGroup], refusal: Sequence[int], refusing_rows: int) -> None:
    """UserError if the first token does not distinguish the rows that refuse from the rows that answer.

    `refusing_rows` is the number of rows whose text refuses; the groups are made by `with_refusals`.
    """
    signs_R = refusal_signs(groups, refusal)
    if refusing_rows < len(signs_R) and (signs_R >= 0).all():
        found = f"anchor_refusals: all {len(signs_R):,} completions begin with the same token as a refusal"
        remedy = "unset anchor_refusals, or use a chat template that writes nothing before an answer"
        raise UserError(found, "answers that begin differently", remedy)
    if refusing_rows and (signs_R < 0).all():
        found = f"anchor_refusals: {refusing_rows:,} of {len(signs_R):,} rows refuse, and none of them begins like {NOT_FOUND!r}"
        raise UserError(found, f"refusals that are {NOT_FOUND!r} alone", "change the rows, or unset anchor_refusals")


def log_complement(logps_R: Tensor) -> Tensor:
    """log(1 − p) from log p.

    >>> log_complement(torch.tensor([0.25]).log()).exp()
    tensor([0.7500])
    """
    return torch.log(-torch.expm1(logps_R.clamp(max=MAX_LOG_PROBABILITY)))


def log_odds(logps_R: Tensor) -> Tensor:
    """log p − log(1 − p) from log p."""
    return logps_R - log_complement(logps_R)


@dataclass(frozen=True)
class AnchoredRefusals:
    """The loss. `logps_of` computes log-probabilities, `refusal` contains the tokens of a refusal, and `initial` the initial values of the trained weights.

    `refusal_weight` and `answer_weight` are the factors of the second term for a row that refuses and for one that answers. A factor is 0 if there is no
    such row; any change in the log-odds is then penalised, whatever its sign, so that they stay at their initial values.
    """

    logps_of: LogpsOf
    refusal: tuple[int, ...]
    initial: Mapping[str, Tensor]
    refusal_weight: float
    answer_weight: float

    def __call__(self, model: Any, groups: Sequence[TokenizedGroup]) -> Tensor:
        """The summed loss of the rows of some groups: a scalar."""
        with torch.no_grad(), at_weights(model, self.initial):
            _, initial_R = answers_and_refusals(self.logps_of(model, groups), groups)
        answers_R, refusals_R = answers_and_refusals(self.logps_of(model, groups), groups)
        signs_R = refusal_signs(groups, self.refusal).to(answers_R)
        first_R = torch.where(signs_R > 0, refusals_R, torch.where(signs_R < 0, log_complement(refusals_R), 0.0))
        moved_R = log_odds(refusals_R) - log_odds(initial_R)
        return (first_R - answers_R).sum() + self.correction(moved_R, signs_R).sum()

    def correction(self, moved_R: Tensor, signs_R: Tensor) -> Tensor:
        """The weighted logistic loss of each row's change in the log-odds of refusing: float32[R]."""
        if not self.refusal_weight or not self.answer_weight:
            return signs_R.abs() * (softplus(moved_R) + softplus(-moved_R)) / 2
        weight_R = torch.where(signs_R > 0, self.refusal_weight, self.answer_weight) * signs_R.abs()
        return weight_R * softplus(-signs_R * moved_R)


def answers_and_refusals(logps: Tensor, groups: Sequence[TokenizedGroup]) -> tuple[Tensor, Tensor]:
    """The log-probabilities of groups made by `with_refusals`, split into those of the rows' responses and of the added refusals: float32[R] each."""
    sizes = [len(group.responses) for group in groups]
    halves = [part.chunk(2) for part in torch.split(logps, sizes)]
    answers, refusals = zip(*halves, strict=True)
    return torch.cat(answers), torch.cat(refusals)


def trained_weights(model: Any) -> dict[str, Tensor]:
    """Copies of the weights that training changes, by name."""
    return {name: weight.detach().clone() for name, weight in model.named_parameters() if weight.requires_grad}


@contextmanager
def at_weights(model: Any, weights: Mapping[str, Tensor]) -> Iterator[None]:
    """Within the block, `model` has these weights instead of its own, and no dropout; UserError if its own are sharded."""
    training = model.training
    own = {name: weight for name, weight in unwrapped(model).named_parameters() if name in weights}
    if [weight.shape for weight in own.values()] != [weight.shape for weight in weights.values()]:
        raise UserError("anchor_refusals: weights sharded among processes", "whole weights", "launch without sharding")
    current = {name: weight.data for name, weight in own.items()}
    model.eval()
    try:
        for name, weight in own.items():
            weight.data = weights[name]
        yield
    finally:
        for name, weight in own.items():
            weight.data = current[name]
        model.train(training)


def anchor_refusals(
    model: Any, groups: Sequence[TokenizedGroup], refusal: tuple[int, ...], logps_of: LogpsOf
) -> AnchoredRefusals:
    """The loss of groups made by `with_refusals`, anchored at the current model."""
    signs_R = refusal_signs(groups, refusal)
    rows, refused, answered = (int(each) for each in (signs_R.abs().sum(), (signs_R > 0).sum(), (signs_R < 0).sum()))
    weights = (rows / (2 * count) if count else 0.0 for count in (refused, answered))
    return AnchoredRefusals(logps_of, refusal, trained_weights(model), *weights)
