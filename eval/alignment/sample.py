"""Samples of a policy with their log-probabilities: the token ids drawn are the ones scored.

Samples are drawn by transformers in this process, or by vLLM (sample_by_vllm.py). Legend: M samples of one prompt, T tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedTokenizerBase

from graph.answer.template import reply_opening
from graph.shared.ids import content_id
from graph.text.replies import without_thinking
from train.model.packing import TokenizedGroup, pack_rows, packed_logps


@dataclass(frozen=True)
class Samples:
    """M samples of one prompt: their token ids after the prompt (ending with an end token unless cut), and their texts without thinking."""

    group: TokenizedGroup
    texts: tuple[str, ...]


@dataclass(frozen=True)
class SamplingSettings:
    """The number of samples per prompt, their maximum length in tokens, and the seed."""

    count: int
    max_tokens: int
    seed: int


@dataclass(frozen=True)
class Policy:
    """A model to draw from and to score with, and its source."""

    source: str
    model: Any
    tokenizer: PreTrainedTokenizerBase


@dataclass(frozen=True)
class Prompt:
    """The id and the token ids of a prompt."""

    id: str
    ids: tuple[int, ...]


Draw = Callable[[Policy, Sequence[Prompt], SamplingSettings], Iterator[Samples]]
"""A function from a policy, prompts and sampling settings to the samples of each prompt, in the order of the prompts."""


def draw_here(policy: Policy, prompts: Sequence[Prompt], sampling: SamplingSettings) -> Iterator[Samples]:
    """Draw with transformers from softmax(logits) at temperature 1 (a Draw), one prompt at a time; reproducible for the same seed and prompt."""
    model, tokenizer = policy.model, policy.tokenizer
    settings = GenerationConfig(
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        repetition_penalty=1.0,
        max_new_tokens=sampling.max_tokens,
        num_return_sequences=sampling.count,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    for prompt in prompts:
        torch.manual_seed(seed_of(sampling, prompt.id))
        input_ids_1T = torch.tensor([list(prompt.ids)], device=model.device)
        mask_1T = torch.ones_like(input_ids_1T)
        with torch.inference_mode():
            output_MT = model.generate(input_ids_1T, attention_mask=mask_1T, generation_config=settings)
        samples_ids = [cut_at_end(row, tokenizer.eos_token_id) for row in output_MT[:, len(prompt.ids) :].tolist()]
        yield samples_of(tokenizer, prompt.ids, samples_ids)


def seed_of(sampling: SamplingSettings, prompt_id: str) -> int:
    """A prompt's seed, the same under every policy."""
    return int(content_id(str(sampling.seed), prompt_id)[:8], 16) >> 1


def samples_of(
    tokenizer: PreTrainedTokenizerBase, prompt_ids: Sequence[int], samples_ids: Sequence[Sequence[int]]
) -> Samples:
    """Samples with these token ids, and their texts without thinking."""
    opening = reply_opening(tokenizer)
    texts = (opening + tokenizer.decode(list(ids), skip_special_tokens=True) for ids in samples_ids)
    group = TokenizedGroup(tuple(prompt_ids), tuple(map(tuple, samples_ids)))
    return Samples(group, tuple(without_thinking(text).strip() for text in texts))


def cut_at_end(ids: Sequence[int], end_id: int) -> list[int]:
    """The ids up to and including the first end token.

    >>> cut_at_end([5, 6, 2, 2, 2], 2), cut_at_end([5, 6], 2)
    ([5, 6, 2], [5, 6])
    """
    end = ids.index(end_id) + 1 if end_id in ids else len(ids)
    return list(ids[:end])


def logps_of_samples(model: Any, samples: Samples) -> Tensor:
    """log π of each sample, summed over its tokens: float32[M] on the CPU."""
    with torch.inference_mode():
        return packed_logps(model, pack_rows([samples.group], samples.group.tokens)).float().cpu()
