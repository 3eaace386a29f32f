"""Gaps between a server's log-probabilities and the run's, their tolerance, and their diagnosis: one line with the fault, its likely cause and the remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from train.export.divergence import CompletionScores, first_difference
from train.model.logps import TokenizedRow

RunState = Literal["trained", "bare", "twice"]
"""The state of a run: as trained, without its adapter, or with the adapter applied twice."""


@dataclass(frozen=True)
class ServedLogps:
    """A server's log-probabilities of the tokens `row.ids[row.prompt_tokens:]` of one conversation, in nats."""

    row: TokenizedRow
    logps: Sequence[float]


@dataclass(frozen=True)
class Gaps:
    """Gaps between log-probabilities, in nats: `conversation` is the largest |Σ_t Δ_t|, `token` the mean |Δ_t| over all tokens, `largest` the largest |Δ_t|."""

    conversation: float
    token: float
    largest: float


@dataclass(frozen=True)
class Tolerance:
    """The largest gaps allowed, in nats."""

    conversation: float
    token: float

    def allows(self, gaps: Gaps) -> bool:
        """Whether gaps are within the tolerance."""
        return gaps.conversation <= self.conversation and gaps.token <= self.token


@dataclass(frozen=True)
class Measurement:
    """One line of the report: the gaps of a served model, to which `batch` conversations are sent at a time, on answers in the run's data or on greedy replies.

    `likeliest` is the share of the tokens of greedy replies that are also the run's first choice.
    """

    model: str
    adapter: bool
    answers: Literal["training", "greedy"]
    batch: int
    conversations: int
    tokens: int
    gaps: Gaps
    likeliest: float | None = None


@dataclass(frozen=True)
class Report:
    """The measurements, one line per fault, and one line per check that could not be made."""

    server: str
    run: str
    tolerance: Tolerance
    measured: tuple[Measurement, ...]
    faults: tuple[str, ...]
    unchecked: tuple[str, ...]


MAX_REMAINING_SHARE = 0.25
"""Another state of the run explains a gap if less than this share of the gap remains."""


def gaps_between(served: Sequence[ServedLogps | CompletionScores], ours: Sequence[CompletionScores]) -> Gaps:
    """The gaps between a server and the run, over conversations of one token or more.

    >>> from train.model.logps import TokenizedRow
    >>> gaps_between([ServedLogps(TokenizedRow((1, 2, 3), 1), (-1.0, -2.0))], [CompletionScores((-1.5, -1.75), (0.0, 0.0))])
    Gaps(conversation=0.25, token=0.375, largest=0.5)
    """
    differences = [
        [a - b for a, b in zip(row_logps.logps, scores.logps, strict=True)]
        for row_logps, scores in zip(served, ours, strict=True)
    ]
    tokens = [abs(gap) for row in differences for gap in row]
    return Gaps(max(abs(sum(row)) for row in differences), sum(tokens) / len(tokens), max(tokens))


def explaining_state(expected: RunState, gaps_by_state: Mapping[RunState, Gaps]) -> RunState | None:
    """The state of the run, other than `expected`, that a server's log-probabilities are close to; None if there is none."""
    nearest = min(gaps_by_state, key=lambda state: gaps_by_state[state].token)
    return nearest if gaps_by_state[nearest].token < MAX_REMAINING_SHARE * gaps_by_state[expected].token else None


def logps_fault(
    name: str, run: str, expected: RunState, gaps_by_state: Mapping[RunState, Gaps], batch: int, tolerance: Tolerance
) -> str:
    """The line for a model whose log-probabilities are out of tolerance."""
    gaps = gaps_by_state[expected]
    apart = f"{gaps.token:.3g} nats per token from training, {gaps.conversation:.3g} per conversation"
    match expected, explaining_state(expected, gaps_by_state):
        case "trained", "bare":
            return (
                f"{name}: the adapter is not loaded: log-probabilities are those of the base ({apart}); "
                f"load it (vLLM: --enable-lora --lora-modules {name}={run}; llama.cpp: --lora FILE, at scale 1) and request it by its name"
            )
        case "trained", "twice":
            return (
                f"{name}: the adapter is applied twice: log-probabilities are those of base + 2 × adapter ({apart}); "
                "it is already merged into the model that it is loaded on, or has scale 2: serve it at scale 1 with the base that it was trained on, "
                "or serve the merged model without the adapter"
            )
        case "bare", ("trained" | "twice"):
            return f"{name}: the base already contains the adapter ({apart}), which was merged into it; serve the base that the run was trained on"
    when = f" with {batch} concurrent requests" if batch > 1 else ""
    return (
        f"{name}: log-probabilities differ{when}: {apart} (tolerance {tolerance.token:g} and {tolerance.conversation:g}); "
        "other weights, a lower precision or a quantised model: serve the run's own weights in its precision (vLLM: --dtype float32)"
    )


def no_effect_fault(run: str, effect: float) -> str:
    """The line for an adapter that changes nothing, wherever it is served."""
    return (
        f"{run}: the adapter has no effect: with and without it, log-probabilities differ by {effect:.2g} nats per token; "
        "train longer or at a higher learning rate"
    )


def template_fault(name: str, run: str, number: int, ours: Sequence[int], theirs: Sequence[int], tokenizer: Any) -> str:
    """The line for a prompt that the server's chat template turns into tokens other than those of training."""
    position, ours_text, theirs_text = first_difference(ours, theirs, tokenizer)
    return (
        f"{name}: another chat template: the prompt of conversation {number} has {len(theirs)} tokens, training's {len(ours)}; "
        f"from token {position} on, it reads {theirs_text} instead of {ours_text}; {_template_remedy(run)}"
    )


def template_count_fault(name: str, run: str, number: int, ours: int, theirs: int) -> str:
    """As `template_fault`, for a server that returns only the number of tokens that it read."""
    return (
        f"{name}: another chat template: the server reads {theirs} tokens in the prompt of conversation {number}, "
        f"training {ours}; {_template_remedy(run)}"
    )


def greedy_fault(name: str, text: str, behind: float) -> str:
    """The line for a reply that departs from the run's own first choice by more than rounding errors."""
    return (
        f"{name}: greedy tokens differ: the run's first choice is {behind:.3g} nats more likely than the token that the server wrote at the end of "
        f"{text!r}; check the server's sampling settings (temperature, penalties) and its precision"
    )


def _template_remedy(run: str) -> str:
    return (
        f"serve the template of {run} (vLLM: --chat-template {run}/chat_template.jinja; llama.cpp: --jinja "
        f"--chat-template-file {run}/chat_template.jinja; Ollama: the Modelfile of `train export --gguf`)"
    )
