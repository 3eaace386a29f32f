"""What the transformers engine does between two tokens: draws the next one, and shows the text so far to whoever watches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from transformers import LogitsProcessor, StoppingCriteria

from graph.shared.errors import UserError
from graph.shared.types import CompletionRequest

Watcher = Callable[[list[int]], bool]
"""Sees the ids written so far after each token; True ends the generation."""


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
