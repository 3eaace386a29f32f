"""The engine for models on this machine or from the hub, through transformers (hf_open.py opens them).

Batches are padded on the left, and a prompt that several requests share is prefilled once: K responses cost one prefill and K decodings. A
JSON schema cannot be enforced here and is left to the prompt. The sampling parameters have vLLM's names and apply in this order: biases
and penalties on the logits, temperature, truncation by top_k, top_p and min_p, sampling."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import (
    DynamicCache,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    StoppingCriteria,
    StoppingCriteriaList,
    TopKLogitsWarper,
    TopPLogitsWarper,
)
from transformers.cache_utils import DynamicLayer

from graph.errors import UserError
from graph.types import Completion, CompletionRequest
from serve.engines.local import PLAIN, LocalModel, PreparedPrompt, Sampling, TokenLogps, Watcher


def penalty_processors(sampling: Sampling, prompt_tokens: int) -> list[LogitsProcessor]:
    """The processors of bias and penalties, for a prompt of `prompt_tokens` tokens."""
    processors: list[LogitsProcessor] = []
    if sampling.logit_bias:
        processors.append(LogitBiasProcessor(sampling.logit_bias))
    if sampling.repetition_penalty != 1:
        processors.append(RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty))
    if sampling.presence_penalty or sampling.frequency_penalty:
        processors.append(PenaltyProcessor(sampling.presence_penalty, sampling.frequency_penalty, prompt_tokens))
    return processors


def truncation_processors(sampling: Sampling) -> list[LogitsProcessor]:
    """The processors that exclude unlikely tokens, applied to logits divided by the temperature."""
    processors: list[LogitsProcessor] = []
    if sampling.top_k > 0:
        processors.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        processors.append(TopPLogitsWarper(sampling.top_p))
    if sampling.min_p > 0:
        processors.append(MinPLogitsWarper(sampling.min_p))
    return processors


class LogitBiasProcessor(LogitsProcessor):  # type: ignore[misc]
    """Adds to the logits of some tokens."""

    def __init__(self, biases: Mapping[int, float]) -> None:
        self._ids, self._values = list(biases), list(biases.values())

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        changed_BV = scores.clone()
        changed_BV[:, self._ids] += torch.tensor(self._values, dtype=scores.dtype, device=scores.device)
        return changed_BV


class PenaltyProcessor(LogitsProcessor):  # type: ignore[misc]
    """Subtracts `frequency` times its count, and `presence` once, from the logit of each generated token; the prompt does not count."""

    def __init__(self, presence: float, frequency: float, prompt_tokens: int) -> None:
        self._presence, self._frequency, self._prompt_tokens = presence, frequency, prompt_tokens

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        generated_BT = input_ids[:, self._prompt_tokens :]
        counts_BV = torch.zeros_like(scores).scatter_add_(
            1, generated_BT, torch.ones_like(generated_BT, dtype=scores.dtype)
        )
        return scores - self._frequency * counts_BV - self._presence * (counts_BV > 0)


class StreamingCriteria(StoppingCriteria):  # type: ignore[misc]
    """Passes the generated ids of the first row to a watcher after each token; stops when the watcher returns True."""

    def __init__(self, watcher: Watcher, prompt_tokens: int) -> None:
        self._watcher, self._prompt_tokens = watcher, prompt_tokens

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **_: object) -> torch.Tensor:
        done = self._watcher(input_ids[0, self._prompt_tokens :].tolist())
        return torch.full((input_ids.shape[0],), done, device=input_ids.device)


class GumbelSampler(LogitsProcessor):  # type: ignore[misc]
    """Sampling as an arg max: argmax(logits / T + Gumbel noise) is a draw from softmax(logits / T) (Gumbel-max trick).

    Each row has its own generator, so that a request's text depends on its seed and not on its neighbours in the batch;
    rows with temperature 0 stay greedy. `truncation_processors` run between the division and the noise. UserError for NaN logits.
    """

    def __init__(
        self, requests: Sequence[CompletionRequest], truncation_processors: Sequence[LogitsProcessor] = ()
    ) -> None:
        self._truncation_processors = truncation_processors
        self._temperatures = [request.temperature for request in requests]
        self._generators = [_generator(request.seed) for request in requests]

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        noisy_BV = scores.float()
        if noisy_BV.isnan().any():
            raise UserError(
                "the model gives logits that are not numbers", "intact weights", "copy or save the model again"
            )
        for row, (temperature, generator) in enumerate(zip(self._temperatures, self._generators, strict=True)):
            if temperature > 0:
                uniform_V = torch.rand(scores.shape[-1], generator=generator, dtype=torch.float64)
                gumbel_V = -torch.log(-torch.log(uniform_V.clamp(1e-300, 1 - 1e-16))).float()
                scaled_1V = noisy_BV[row : row + 1] / temperature
                for processor in self._truncation_processors:
                    scaled_1V = processor(input_ids[row : row + 1], scaled_1V)
                noisy_BV[row] = scaled_1V[0] + gumbel_V.to(scores.device)
        return noisy_BV


def _generator(seed: int | None) -> torch.Generator:
    generator = torch.Generator()
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed)
    return generator


class HfModel(LocalModel):
    """A LanguageModel over a transformers model and its tokenizer; its window is unbounded where its config names none."""

    kind, gives_logps = "hf", True

    def __init__(self, name: str, model: Any, tokenizer: Any) -> None:
        window = int(getattr(model.config.get_text_config(), "max_position_embeddings", sys.maxsize))
        super().__init__(name, tokenizer, window, _stop_ids(model, tokenizer))
        self._model = model.eval()
        self.vocabulary = int(model.get_input_embeddings().num_embeddings)
        pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else min(self._stop_ids, default=0)
        self._pad_id = int(pad_id)
        # The model's own defaults (top_p, repetition penalty, …) would change greedy decoding and the sampler below.
        model.generation_config = GenerationConfig(
            eos_token_id=sorted(self._stop_ids) or None, pad_token_id=self._pad_id
        )

    def run(
        self, batch: Sequence[PreparedPrompt], watcher: Watcher | None = None, sampling: Sampling = PLAIN
    ) -> list[Completion]:
        """One batch of prompts with the same `max_new_tokens`; shorter prompts are padded on the left."""
        longest = max(len(prompt.ids) for prompt in batch)
        padded = [[self._pad_id] * (longest - len(prompt.ids)) + prompt.ids for prompt in batch]
        mask = [[0] * (longest - len(prompt.ids)) + [1] * len(prompt.ids) for prompt in batch]
        device = self._model.device
        ids_BT, mask_BT = torch.tensor(padded, device=device), torch.tensor(mask, device=device)
        sampler = GumbelSampler([prompt.request for prompt in batch], truncation_processors(sampling))
        with torch.inference_mode():
            output_BT = self._model.generate(
                input_ids=ids_BT,
                attention_mask=mask_BT,
                past_key_values=prefill_shared(self._model, ids_BT, mask_BT),
                max_new_tokens=batch[0].max_new_tokens,
                do_sample=False,
                logits_processor=LogitsProcessorList([*penalty_processors(sampling, longest), sampler]),
                stopping_criteria=StoppingCriteriaList(
                    [StreamingCriteria(watcher, longest)] if watcher is not None else []
                ),
            )
        generated = output_BT[:, longest:].tolist()
        return [self.completion_of(prompt, ids) for prompt, ids in zip(batch, generated, strict=True)]

    def token_logps(self, request: CompletionRequest, ids: Sequence[int], top: int) -> list[TokenLogps]:
        """As in LocalModel, by one forward pass over prompt and completion."""
        prompt = self.prompt_ids(request.messages)
        row_1T = torch.tensor([[*prompt, *ids]], device=self._model.device)
        with self._lock, torch.inference_mode():
            logits_1NV = self._model(input_ids=row_1T, logits_to_keep=len(ids) + 1, use_cache=False).logits
        logps_NV = logits_1NV[0, :-1].float().log_softmax(-1)
        best_NK = logps_NV.topk(top)
        likeliest = zip(best_NK.indices.tolist(), best_NK.values.tolist(), strict=True)
        return [
            TokenLogps(token, float(logps_NV[position, token]), tuple(zip(tokens, logps, strict=True)))
            for position, (token, (tokens, logps)) in enumerate(zip(ids, likeliest, strict=True))
        ]


def prefill_shared(model: Any, ids_BT: Tensor, mask_BT: Tensor) -> DynamicCache | None:
    """Keys and values of all but the last token of each row, equal rows prefilled once; `generate` continues from them.

    None where no two rows are equal, and for models whose cache cannot be copied per row (sliding windows, recurrent states).
    """
    first, rows = first_of_equals(ids_BT.tolist())
    if len(first) == len(rows) or ids_BT.shape[1] < 2:
        return None
    prefilled = model.generate(
        input_ids=ids_BT[first],
        attention_mask=mask_BT[first],
        max_new_tokens=1,
        do_sample=False,
        return_dict_in_generate=True,
    )
    cache = prefilled.past_key_values
    if type(cache) is not DynamicCache or any(type(layer) is not DynamicLayer for layer in cache.layers):
        return None
    cache.crop(-1)
    cache.batch_select_indices(torch.tensor(rows, device=ids_BT.device))
    return cache


def first_of_equals(rows: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
    """The index of the first occurrence of each distinct row, and for every row the number of its distinct row.

    >>> first_of_equals([[7, 8], [9], [7, 8]])
    ([0, 1], [0, 1, 0])
    """
    numbers: dict[tuple[int, ...], int] = {}
    numbers_of_rows = [numbers.setdefault(tuple(row), len(numbers)) for row in rows]
    return [numbers_of_rows.index(number) for number in range(len(numbers))], numbers_of_rows


def _stop_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Every stop token id: those of the generation config (one or several) and the tokenizer's."""
    configured = model.generation_config.eos_token_id if model.generation_config is not None else None
    ids = [configured] if isinstance(configured, int) else list(configured or ())
    return frozenset([*ids, *([tokenizer.eos_token_id] if tokenizer.eos_token_id is not None else [])])
