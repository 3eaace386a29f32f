"""Attention over packed rows without the blocks that a mask would hide: each prompt once, causally, then its responses, which attend to it.

With a mask over a row, the kernel computes every pair of tokens and discards most. Here a prompt attends to itself in the kernel's
causal mode, which skips half of the pairs, and its responses, a few hundred tokens at a time, attend to the prompt and to
themselves. The result is equal up to rounding; an unpacked batch uses the standard attention.
Legend: H heads, T tokens of a row, N tokens of a chunk of responses, P tokens of their prompt, D dimensions of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

SHARED_PREFIX = "shared_prefix"
"""The name of this attention in a model's configuration."""
CHUNK_TOKENS = 256
"""The largest number of tokens of a chunk of several responses: larger chunks mask more pairs, smaller ones copy the prompt's keys more often."""


@dataclass(frozen=True)
class Chunk:
    """Tokens `start` to `end` of a row, complete responses of one prompt, and their attention mask: bool[N, P + N]."""

    start: int
    end: int
    mask: Tensor


@dataclass(frozen=True)
class GroupSpan:
    """One prompt, tokens `start` to `end` of row `row`, and the chunks of its responses, which follow it."""

    row: int
    start: int
    end: int
    chunks: tuple[Chunk, ...]


def group_span(row: int, start: int, prompt_tokens: int, response_tokens: Sequence[int]) -> GroupSpan:
    """The span of a prompt followed by its responses, from token `start` of a row."""
    end = start + prompt_tokens
    chunks: list[Chunk] = []
    pending: list[int] = []
    chunk_start = end
    for number, tokens in enumerate(response_tokens):
        pending.append(tokens)
        last = number + 1 == len(response_tokens)
        if last or sum(pending) + response_tokens[number + 1] > CHUNK_TOKENS:
            chunks.append(Chunk(chunk_start, chunk_start + sum(pending), chunk_mask(prompt_tokens, pending)))
            chunk_start += sum(pending)
            pending = []
    return GroupSpan(row, start, end, tuple(chunks))


def on_device(spans: Sequence[GroupSpan], device: torch.device) -> tuple[GroupSpan, ...]:
    """The same spans with their masks on `device`."""
    return tuple(replace(s, chunks=tuple(replace(c, mask=c.mask.to(device)) for c in s.chunks)) for s in spans)


def use_shared_prefix_attention(model: Any) -> None:
    """Make a model use `shared_prefix_attention`; batches without spans use "sdpa"."""
    AttentionInterface.register(SHARED_PREFIX, shared_prefix_attention)
    AttentionMaskInterface.register(SHARED_PREFIX, sdpa_mask)
    model.set_attn_implementation(SHARED_PREFIX)


def shared_prefix_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    shared_prefixes: Sequence[GroupSpan] | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """An attention function of transformers: [B, H, T, D] to [B, T, H, D]; without `shared_prefixes` it is "sdpa"."""
    if shared_prefixes is None:
        output: tuple[Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **options)
        return output
    groups, scaling = getattr(module, "num_key_value_groups", 1), options.get("scaling")
    rows = []
    for row in range(len(query)):
        spans = [span for span in shared_prefixes if span.row == row]
        rows.append(torch.cat(_attend(spans, query[row], key[row], value[row], groups, scaling), dim=1))
    return torch.stack(rows).transpose(1, 2).contiguous(), None


def _attend(
    spans: Sequence[GroupSpan],
    query_HTD: Tensor,
    key_HTD: Tensor,
    value_HTD: Tensor,
    groups: int,
    scaling: float | None,
) -> list[Tensor]:
    """The outputs of a row's prompts and of their chunks of responses, in order, then zeros for its padding: each [H, tokens, D].

    Queries, keys and values are split once: a separate slice for every part would have a gradient as long as the row.
    """
    lengths = [length for span in spans for length in (span.end - span.start, *(c.end - c.start for c in span.chunks))]
    padding = query_HTD.shape[1] - sum(lengths)
    queries, keys, values = (
        iter(torch.split(each, [*lengths, padding], dim=1)) for each in (query_HTD, key_HTD, value_HTD)
    )
    outputs = []
    for span in spans:
        prompt_keys, prompt_values = (_repeat_heads(next(each), groups) for each in (keys, values))
        outputs.append(_sdpa(next(queries), prompt_keys, prompt_values, None, scaling))
        for chunk in span.chunks:
            own_keys, own_values = (_repeat_heads(next(each), groups) for each in (keys, values))
            all_keys = torch.cat([prompt_keys, own_keys], dim=1)
            all_values = torch.cat([prompt_values, own_values], dim=1)
            outputs.append(_sdpa(next(queries), all_keys, all_values, chunk.mask, scaling))
    return [*outputs, query_HTD.new_zeros(query_HTD.shape[0], padding, query_HTD.shape[2])]


def _repeat_heads(each_HTD: Tensor, groups: int) -> Tensor:
    """Keys or values of grouped-query attention, repeated for each query head that uses them."""
    repeated: Tensor = repeat_kv(each_HTD[None], groups)[0]
    return repeated


def _sdpa(query_HND: Tensor, key_HTD: Tensor, value_HTD: Tensor, mask: Tensor | None, scaling: float | None) -> Tensor:
    """One call of the kernel; causal without a mask."""
    mask_11NT = None if mask is None else mask[None, None]
    output = scaled_dot_product_attention(
        query_HND[None], key_HTD[None], value_HTD[None], attn_mask=mask_11NT, is_causal=mask is None, scale=scaling
    )
    return output[0]


def chunk_mask(prompt_tokens: int, response_tokens: Sequence[int]) -> Tensor:
    """The mask of a chunk: each token attends to all of the prompt, and to its own response up to itself: bool[N, P + N]."""
    number_N = torch.repeat_interleave(torch.arange(len(response_tokens)), torch.tensor(response_tokens))
    own = (number_N[:, None] == number_N) & torch.ones(len(number_N), len(number_N), dtype=torch.bool).tril()
    return torch.cat([torch.ones(len(own), prompt_tokens, dtype=torch.bool), own], dim=1)
