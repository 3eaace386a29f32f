"""How the transformers engine chooses the next token, as vLLM reads the fields of these names, and shows the text so far.

In this order: biases and penalties on the logits, then the temperature, then the cuts of top_k, top_p and min_p, then the draw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from transformers import (
    LogitsProcessor,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    StoppingCriteria,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from graph.shared.errors import UserError
from graph.shared.types import CompletionRequest
from serve.engines.local import Sampling, Watcher


def weights(sampling: Sampling, prompt_tokens: int) -> list[LogitsProcessor]:
    """What changes the logits of a prompt of so many tokens."""
    made: list[LogitsProcessor] = []
    if sampling.logit_bias:
        made.append(LogitBiasProcessor(sampling.logit_bias))
    if sampling.repetition_penalty != 1:
        made.append(RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty))
    if sampling.presence_penalty or sampling.frequency_penalty:
        made.append(PenaltyProcessor(sampling.presence_penalty, sampling.frequency_penalty, prompt_tokens))
    return made


def cuts(sampling: Sampling) -> list[LogitsProcessor]:
    """What leaves out unlikely tokens, of logits that the temperature has been taken out of."""
    made: list[LogitsProcessor] = []
    if sampling.top_k > 0:
        made.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        made.append(TopPLogitsWarper(sampling.top_p))
    if sampling.min_p > 0:
        made.append(MinPLogitsWarper(sampling.min_p))
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


class StreamingCriteria(StoppingCriteria):  # type: ignore[misc]
    """Shows the written ids of the first row to a watcher after each token; ends the generation when it has enough."""

    def __init__(self, watcher: Watcher, prompt_tokens: int) -> None:
        self._watcher, self._prompt_tokens = watcher, prompt_tokens

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **_: object) -> torch.Tensor:
        done = self._watcher(input_ids[0, self._prompt_tokens :].tolist())
        return torch.full((input_ids.shape[0],), done, device=input_ids.device)


class GumbelSampler(LogitsProcessor):  # type: ignore[misc]
    """Sampling as an arg max: argmax(logits / T + Gumbel noise) is a draw from softmax(logits / T) (Gumbel-max trick).

    Each row has its own generator, so that a request's text depends on its seed and not on its neighbours in the batch;
    rows with temperature 0 stay greedy. `cuts` leave out tokens between the division and the noise. UserError for logits that are NaN.
    """

    def __init__(self, requests: Sequence[CompletionRequest], cuts: Sequence[LogitsProcessor] = ()) -> None:
        self._cuts = cuts
        self._temperatures = [request.temperature for request in requests]
        self._generators = [_generator(request.seed) for request in requests]

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        noisy_BV = scores.float()
        if noisy_BV.isnan().any():
            raise UserError(
                "the model gives logits that are not numbers", "whole weights", "copy or save the model again"
            )
        for row, (temperature, generator) in enumerate(zip(self._temperatures, self._generators, strict=True)):
            if temperature > 0:
                uniform_V = torch.rand(scores.shape[-1], generator=generator, dtype=torch.float64)
                gumbel_V = -torch.log(-torch.log(uniform_V.clamp(1e-300, 1 - 1e-16))).float()
                warm_1V = noisy_BV[row : row + 1] / temperature
                for each in self._cuts:
                    warm_1V = each(input_ids[row : row + 1], warm_1V)
                noisy_BV[row] = warm_1V[0] + gumbel_V.to(scores.device)
        return noisy_BV


def _generator(seed: int | None) -> torch.Generator:
    generator = torch.Generator()
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed)
    return generator
