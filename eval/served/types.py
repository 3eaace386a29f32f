"""The nouns of `modegraph serve check`: what a server told of a conversation, how far that is from the run, and what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from train.model.logps import TokenizedRow

How = Literal["trained", "bare", "twice"]
"""A run as it was trained, without its adapter, and with the adapter counted twice."""


@dataclass(frozen=True)
class Told:
    """What a server told of one conversation: log-probabilities of the tokens `row.ids[row.prompt_tokens:]`, in nats."""

    row: TokenizedRow
    logps: Sequence[float]


@dataclass(frozen=True)
class Gaps:
    """How far log-probabilities are apart, in nats.

    `conversation` is the largest |Σ_t Δ_t|, `token` the mean |Δ_t| over all tokens, `largest` the largest |Δ_t|.
    """

    conversation: float
    token: float
    largest: float


@dataclass(frozen=True)
class Tolerance:
    """What gaps may be, in nats."""

    conversation: float
    token: float

    def holds(self, gaps: Gaps) -> bool:
        """Whether they are."""
        return gaps.conversation <= self.conversation and gaps.token <= self.token


@dataclass(frozen=True)
class Measured:
    """One line of the report: a served model, asked `batch` conversations at a time for what training saw or for greedy replies.

    `likeliest` is the share of the tokens of greedy replies that are the run's first choice too.
    """

    model: str
    adapter: bool
    asked: Literal["training", "greedy"]
    batch: int
    conversations: int
    tokens: int
    gaps: Gaps
    likeliest: float | None = None


@dataclass(frozen=True)
class Report:
    """What was measured, each fault in one line, and what could not be checked. Nothing is wrong when `faults` is empty."""

    server: str
    run: str
    tolerance: Tolerance
    measured: tuple[Measured, ...]
    faults: tuple[str, ...]
    unchecked: tuple[str, ...]
