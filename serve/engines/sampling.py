"""How the transformers engine weighs the next token beside temperature and seed, as vLLM reads the fields of these names.

In this order: biases and penalties on the logits, then the temperature, then the cuts of top_k, top_p and min_p, then the draw
(serve/engines/steps.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from transformers import (
    LogitsProcessor,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TopKLogitsWarper,
    TopPLogitsWarper,
)


@dataclass(frozen=True)
class Sampling:
    """What is asked beside temperature and seed; the values here ask for nothing."""

    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)

    def weights(self, prompt_tokens: int) -> list[LogitsProcessor]:
        """What changes the logits of a prompt of so many tokens."""
        made: list[LogitsProcessor] = []
        if self.logit_bias:
            made.append(LogitBiasProcessor(self.logit_bias))
        if self.repetition_penalty != 1:
            made.append(RepetitionPenaltyLogitsProcessor(self.repetition_penalty))
        if self.presence_penalty or self.frequency_penalty:
            made.append(PenaltyProcessor(self.presence_penalty, self.frequency_penalty, prompt_tokens))
        return made

    def cuts(self) -> list[LogitsProcessor]:
        """What leaves out unlikely tokens, of logits that the temperature has been taken out of."""
        made: list[LogitsProcessor] = []
        if self.top_k > 0:
            made.append(TopKLogitsWarper(self.top_k))
        if self.top_p < 1:
            made.append(TopPLogitsWarper(self.top_p))
        if self.min_p > 0:
            made.append(MinPLogitsWarper(self.min_p))
        return made


class LogitBiasProcessor(LogitsProcessor):  # type: ignore[misc]
    """Adds to the logits of some tokens."""

    def __init__(self, biases: Mapping[int, float]) -> None:
        self._ids, self._values = list(biases), list(biases.values())

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        changed_BV = scores.clone()
        changed_BV[:, self._ids] += torch.tensor(self._values, dtype=scores.dtype, device=scores.device)
        return changed_BV


class PenaltyProcessor(LogitsProcessor):  # type: ignore[misc]
    """Takes `frequency` for each time that a token has been written, and `presence` once, off its logit; the prompt does not count."""

    def __init__(self, presence: float, frequency: float, prompt_tokens: int) -> None:
        self._presence, self._frequency, self._prompt_tokens = presence, frequency, prompt_tokens

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        written_BT = input_ids[:, self._prompt_tokens :]
        times_BV = torch.zeros_like(scores).scatter_add_(1, written_BT, torch.ones_like(written_BT, dtype=scores.dtype))
        return scores - self._frequency * times_BV - self._presence * (times_BV > 0)
