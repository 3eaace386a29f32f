"""The engine for models on this machine or from the hub, through transformers (hf_open.py opens them).

Batches are padded on the left. Requests with the same prompt are decoded side by side, if the model allows it, and share one copy of the
prompt's keys and values, so that K responses cost one prefill, and each step reads prompt and weights once (`decode_side_by_side`). A JSON schema
cannot be enforced here and is left to the prompt. The sampling parameters have vLLM's names. The steps are, in order:
biases and penalties on the logits; temperature; truncation by top_k, top_p and min_p; sampling.

Legend: B rows of a batch, T tokens, V vocabulary, S steps."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot
from transformers import (
    DynamicCache,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    StoppingCriteria,
    StoppingCriteriaList,
    TopKLogitsWarper,
    TopPLogitsWarper,
)
from transformers.cache_utils import DynamicLayer

from graph.errors import UserError
from graph.types import Completion, CompletionRequest
from serve.engines.local import DEFAULT_SAMPLING, LocalModel, PreparedPrompt, Sampling, TokenLogps, Watcher


def penalty_processors(sampling: Sampling, prompt_tokens: int) -> list[LogitsProcessor]:
    """The processors that apply biases and penalties, for a prompt of `prompt_tokens` tokens."""
    processors: list[LogitsProcessor] = []
    if sampling.logit_bias:
        biases = {(token,): float(bias) for token, bias in sampling.logit_bias.items()}
        processors.append(SequenceBiasLogitsProcessor(biases))
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


class PenaltyProcessor(LogitsProcessor):  # type: ignore[misc]
    """Lowers the logit of each token generated so far by `frequency` times its count plus `presence`; the prompt's tokens are not counted."""

    def __init__(self, presence: float, frequency: float, prompt_tokens: int) -> None:
        self._presence, self._frequency, self._prompt_tokens = presence, frequency, prompt_tokens

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        generated_BT = input_ids[:, self._prompt_tokens :]
        ones_BT = torch.ones_like(generated_BT, dtype=scores.dtype)
        counts_BV = torch.zeros_like(scores).scatter_add_(1, generated_BT, ones_BT)
        return scores - self._frequency * counts_BV - self._presence * (counts_BV > 0)


class StreamingCriteria(StoppingCriteria):  # type: ignore[misc]
    """Passes the generated ids of the first row to a watcher after each token; stops when the watcher returns True."""

    def __init__(self, watcher: Watcher, prompt_tokens: int) -> None:
        self._watcher, self._prompt_tokens = watcher, prompt_tokens

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **_: object) -> torch.Tensor:
        done = self._watcher(input_ids[0, self._prompt_tokens :].tolist())
        return torch.full((input_ids.shape[0],), done, device=input_ids.device)


Sampler = Callable[[Sequence[int], Tensor], Tensor]
"""Maps the indices of U rows and their logits, [U, V], to scores whose arg max is the next token."""
NO_IDS = torch.empty(1, 0, dtype=torch.long)
"""Token ids for the truncation processors, which use only the scores."""


class GumbelSampler(LogitsProcessor):  # type: ignore[misc]
    """Sampling as an arg max: argmax(logits / T + Gumbel noise) is a sample from softmax(logits / T) (Gumbel-max trick).

    Each row has its own generator on `device`, so that a request's text depends on its seed and not on the other rows of the batch
    (a GPU and a CPU sample different texts from the same seed); rows with temperature 0 stay greedy. `truncation_processors` run after the
    division and before the noise. UserError for NaN logits.
    """

    def __init__(
        self,
        requests: Sequence[CompletionRequest],
        truncation_processors: Sequence[LogitsProcessor] = (),
        device: torch.device | str = "cpu",
    ) -> None:
        self._truncation_processors = truncation_processors
        self._temperatures = [request.temperature for request in requests]
        self._generators = [_generator(request.seed, device) for request in requests]

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """A LogitsProcessor of transformers: the noisy scores of all rows."""
        del input_ids
        return self.noisy_scores(range(len(scores)), scores)

    def noisy_scores(self, rows: Sequence[int], logits_UV: Tensor) -> Tensor:
        """The noisy scores of some rows (a Sampler); the generators of the others are not advanced."""
        noisy_UV = logits_UV.to(torch.float32, copy=True)
        if noisy_UV.isnan().any():
            found = "the model returns logits that are not numbers"
            raise UserError(found, "intact weights", "copy or save the model again")
        for place, row in enumerate(rows):
            temperature, generator = self._temperatures[row], self._generators[row]
            if temperature > 0:
                uniform_V = torch.rand(
                    logits_UV.shape[-1], generator=generator, dtype=torch.float64, device=generator.device
                )
                gumbel_V = -torch.log(-torch.log(uniform_V.clamp(1e-300, 1 - 1e-16))).float()
                scaled_1V = noisy_UV[place : place + 1] / temperature
                for processor in self._truncation_processors:
                    scaled_1V = processor(NO_IDS, scaled_1V)
                noisy_UV[place] = scaled_1V[0] + gumbel_V.to(logits_UV.device)
        return noisy_UV


def _generator(seed: int | None, device: torch.device | str) -> torch.Generator:
    generator = torch.Generator(device)
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed)
    return generator


GPU_BATCH = 128
"""Prompts in a batch on a GPU, where a step takes as long for many rows as for a few."""


class HfModel(LocalModel):
    """A LanguageModel that wraps a transformers model and its tokenizer; the context window is unbounded if the model's config states no limit."""

    kind, gives_logps = "hf", True

    def __init__(self, name: str, model: Any, tokenizer: Any) -> None:
        window = int(getattr(model.config.get_text_config(), "max_position_embeddings", sys.maxsize))
        super().__init__(name, tokenizer, window, _stop_ids(model, tokenizer))
        self._model = model.eval()
        if model.device.type == "cuda":
            self.batch_size = GPU_BATCH
        self.vocabulary = int(model.get_input_embeddings().num_embeddings)
        self._pad_id = min(self._stop_ids, default=0) if tokenizer.pad_token_id is None else int(tokenizer.pad_token_id)
        # The model's own defaults (top_p, repetition penalty, …) would change greedy decoding and what GumbelSampler samples.
        end_ids = sorted(self._stop_ids) or None
        model.generation_config = GenerationConfig(eos_token_id=end_ids, pad_token_id=self._pad_id)

    def run(
        self, batch: Sequence[PreparedPrompt], watcher: Watcher | None = None, sampling: Sampling = DEFAULT_SAMPLING
    ) -> list[Completion]:
        """The replies to a batch of prompts with the same `max_new_tokens`; shorter prompts are padded on the left."""
        longest = max(len(prompt.ids) for prompt in batch)
        padded = [[self._pad_id] * (longest - len(prompt.ids)) + prompt.ids for prompt in batch]
        mask = [[0] * (longest - len(prompt.ids)) + [1] * len(prompt.ids) for prompt in batch]
        device = self._model.device
        ids_BT, mask_BT = torch.tensor(padded, device=device), torch.tensor(mask, device=device)
        sampler = GumbelSampler([prompt.request for prompt in batch], truncation_processors(sampling), device)
        stop_ids, max_new_tokens = self._stop_ids, batch[0].max_new_tokens
        has_duplicates = len({tuple(prompt.ids) for prompt in batch}) < len(batch)
        with torch.inference_mode():
            if watcher is None and sampling == DEFAULT_SAMPLING and has_duplicates and self._decodes_side_by_side:
                generated = decode_side_by_side(
                    self._model, ids_BT, mask_BT, sampler.noisy_scores, max_new_tokens, stop_ids
                )
            else:
                criteria = [StreamingCriteria(watcher, longest)] if watcher is not None else []
                output_BT = self._model.generate(
                    input_ids=ids_BT,
                    attention_mask=mask_BT,
                    max_new_tokens=max_new_tokens,
                    do_sample=False,
                    logits_processor=LogitsProcessorList([*penalty_processors(sampling, longest), sampler]),
                    stopping_criteria=StoppingCriteriaList(criteria),
                )
                generated = output_BT[:, longest:].tolist()
        return [self.completion_of(prompt, ids) for prompt, ids in zip(batch, generated, strict=True)]

    @cached_property
    def _decodes_side_by_side(self) -> bool:
        return can_decode_side_by_side(self._model)

    def token_logps(self, request: CompletionRequest, ids: Sequence[int], top: int) -> list[TokenLogps]:
        """As in LocalModel, computed in one forward pass over prompt and completion. Legend: N positions, K likeliest tokens."""
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


def decode_side_by_side(
    model: Any, ids_BT: Tensor, mask_BT: Tensor, sampler: Sampler, max_new_tokens: int, stop_ids: frozenset[int]
) -> list[list[int]]:
    """The tokens generated for each row, up to and including its first stop token; equal rows share the keys and values of their prompt.

    The rows of a prompt are one sequence: the tokens that its unfinished rows get in one step follow each other in the cache, and the mask lets
    each row see only the prompt and its own tokens. Prompts whose rows are all finished are removed once they make up at least half of the cache.
    Legend: U unfinished rows, D prompts in the cache, K the largest number of unfinished rows of one prompt, N positions in the cache.
    """
    first, prompts = first_occurrences(torch.cat([ids_BT, mask_BT], 1).tolist())
    prompt_mask_DT = mask_BT[first].bool()
    length_D1 = prompt_mask_DT.sum(-1, keepdim=True)
    output = model(
        input_ids=ids_BT[first],
        attention_mask=mask_BT[first],
        position_ids=(prompt_mask_DT.cumsum(-1) - 1).clamp(min=0),
        use_cache=True,
        logits_to_keep=1,
    )
    rows: list[list[int]] = [[] for _ in prompts]
    unfinished, cached = list(range(len(rows))), list(range(len(first)))
    visible_UN, logits_UV = mask_BT.bool(), output.logits[prompts, -1]
    for step in range(max_new_tokens):
        tokens_U = sampler(unfinished, logits_UV).argmax(-1)
        for row, token in zip(unfinished, tokens_U.tolist(), strict=True):
            rows[row].append(token)
        places = [place for place, row in enumerate(unfinished) if rows[row][-1] not in stop_ids]
        if step + 1 == max_new_tokens or not places:
            break
        unfinished = [unfinished[place] for place in places]
        tokens_U, visible_UN = tokens_U[places], visible_UN[places]
        needed = {prompts[row] for row in unfinished}
        if 2 * len(needed) <= len(cached):
            remaining = [place for place, prompt in enumerate(cached) if prompt in needed]
            output.past_key_values.batch_select_indices(torch.tensor(remaining, device=ids_BT.device))
            cached, length_D1 = [cached[place] for place in remaining], length_D1[remaining]
        place_of = {prompt: place for place, prompt in enumerate(cached)}
        of_prompt = [place_of[prompts[row]] for row in unfinished]
        next_slot: defaultdict[int, count[int]] = defaultdict(count)
        slots = [next(next_slot[place]) for place in of_prompt]
        shape = (len(cached), max(slots) + 1)
        tokens_DK = tokens_U.new_zeros(shape)
        tokens_DK[of_prompt, slots] = tokens_U
        own_UK = one_hot(torch.tensor(slots, device=ids_BT.device), shape[1]).bool()
        visible_UN = torch.cat([visible_UN, own_UK], -1)
        visible_DKN = visible_UN.new_zeros(*shape, visible_UN.shape[1])
        visible_DKN[of_prompt, slots] = visible_UN
        mask_DKN = torch.zeros_like(visible_DKN, dtype=model.dtype)
        output = model(
            input_ids=tokens_DK,
            attention_mask=mask_DKN.masked_fill(~visible_DKN, torch.finfo(model.dtype).min)[:, None],
            position_ids=(length_D1 + step).expand(shape),
            past_key_values=output.past_key_values,
            use_cache=True,
        )
        logits_UV = output.logits[of_prompt, slots]
    return rows


def can_decode_side_by_side(model: Any) -> bool:
    """Whether `decode_side_by_side` is correct for a model; tested on fixed tokens, because some kinds of attention ignore their mask."""
    device = model.device
    ids_BT = torch.tensor([[3, 5, 7, 9]] * 2, device=device)
    forced_BS = torch.tensor([[2, 4, 6], [8, 1, 3]], device=device)
    logits_of_steps: list[Tensor] = []

    def force(_: Sequence[int], logits_BV: Tensor) -> Tensor:
        logits_of_steps.append(logits_BV)
        return one_hot(forced_BS[:, len(logits_of_steps) - 1], logits_BV.shape[-1])

    try:
        cache = model(input_ids=ids_BT, use_cache=True).past_key_values
        if type(cache) is not DynamicCache or any(type(layer) is not DynamicLayer for layer in cache.layers):
            return False  # sliding windows or recurrent states, on which a mask has no effect
        decode_side_by_side(model, ids_BT, torch.ones_like(ids_BT), force, forced_BS.shape[1], frozenset())
        plain_BSV = model(input_ids=torch.cat([ids_BT, forced_BS], 1)).logits[:, ids_BT.shape[1] - 1 : -1].float()
    except (TypeError, ValueError, RuntimeError, IndexError):
        return False
    tolerance = 1e-3 if model.dtype.itemsize >= 4 else 0.05
    gap = (torch.stack(logits_of_steps, 1).float() - plain_BSV).abs().max()
    return bool(gap <= tolerance * plain_BSV.abs().max())


def first_occurrences(rows: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
    """The index of the first occurrence of each distinct row, and for every row its position among the distinct rows.

    >>> first_occurrences([[7, 8], [9], [7, 8]])
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
