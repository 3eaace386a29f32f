"""Attention over packed rows without the squares that a mask would hide: each prompt once, causally, and its responses over it.

A mask of a whole row makes the kernel compute every pair of tokens and throw most away. Here a prompt attends to itself by the
kernel's own causal form, which skips half of the pairs, and its responses, a few hundred tokens at a time, attend to the prompt and
to themselves. The result is the same to the last bits of rounding; an ordinary batch goes the ordinary way.
Legend: H heads, T tokens of a row, N tokens of a chunk of responses, P tokens of their prompt, D dimensions of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
"""Responses are taken together up to so many tokens: fewer copies of a prompt's keys, and few pairs hidden by the mask."""


@dataclass(frozen=True)
class Chunk:
    """Tokens `start` to `end` of a row, whole responses of one prompt, and which of the prompt and of them each sees: bool[N, P + N]."""

    start: int
    end: int
    sees: Tensor


@dataclass(frozen=True)
class Place:
    """Where one prompt lies in row `row`, and its responses behind it."""

    row: int
    start: int
    end: int
    chunks: tuple[Chunk, ...]


def place_group(row: int, start: int, prompt_tokens: int, response_tokens: Sequence[int]) -> Place:
    """The place of a prompt with its responses, one behind the other, from token `start` of a row on."""
    end = start + prompt_tokens
    chunks: list[Chunk] = []
    waiting: list[int] = []
    at = end
    for place, tokens in enumerate(response_tokens):
        waiting.append(tokens)
        last = place + 1 == len(response_tokens)
        if last or sum(waiting) + response_tokens[place + 1] > CHUNK_TOKENS:
            chunks.append(Chunk(at, at + sum(waiting), _sees(prompt_tokens, waiting)))
            at += sum(waiting)
            waiting = []
    return Place(row, start, end, tuple(chunks))


def on_device(places: Sequence[Place], device: torch.device) -> tuple[Place, ...]:
    """The same places with their masks on `device`."""
    return tuple(
        Place(p.row, p.start, p.end, tuple(Chunk(c.start, c.end, c.sees.to(device)) for c in p.chunks)) for p in places
    )


def use_shared_prefix_attention(model: Any) -> None:
    """Have a model attend by `shared_prefix_attention`; batches without places are not changed by it."""
    AttentionInterface.register(SHARED_PREFIX, shared_prefix_attention)
    AttentionMaskInterface.register(SHARED_PREFIX, sdpa_mask)
    model.set_attn_implementation(SHARED_PREFIX)


def shared_prefix_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    shared_prefixes: Sequence[Place] | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """An attention function of transformers: [B, H, T, D] to [B, T, H, D]; without `shared_prefixes` it is "sdpa"."""
    if shared_prefixes is None:
        attended: tuple[Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **options)
        return attended
    groups = getattr(module, "num_key_value_groups", 1)
    rows = [
        torch.cat(
            _attend(
                [place for place in shared_prefixes if place.row == row],
                query[row],
                key[row],
                value[row],
                groups,
                options.get("scaling"),
            ),
            dim=1,
        )
        for row in range(len(query))
    ]
    return torch.stack(rows).transpose(1, 2).contiguous(), None


def _attend(
    places: Sequence[Place], query_HTD: Tensor, key_HTD: Tensor, value_HTD: Tensor, groups: int, scaling: float | None
) -> list[Tensor]:
    """The outputs of a row's prompts and of their chunks of responses, in order, zeros for its padding: each [H, tokens, D].

    Queries, keys and values are split once: a slice of its own for every part would have a gradient as long as the row.
    """
    lengths = [
        length for place in places for length in (place.end - place.start, *(c.end - c.start for c in place.chunks))
    ]
    padding = query_HTD.shape[1] - sum(lengths)
    queries, keys, values = (
        iter(torch.split(each, [*lengths, padding], dim=1)) for each in (query_HTD, key_HTD, value_HTD)
    )
    outputs = []
    for place in places:
        prompt_keys, prompt_values = (_repeated(next(each), groups) for each in (keys, values))
        outputs.append(_sdpa(next(queries), prompt_keys, prompt_values, None, scaling))
        for chunk in place.chunks:
            own_keys, own_values = (_repeated(next(each), groups) for each in (keys, values))
            seen_keys, seen_values = (
                torch.cat([prompt_keys, own_keys], dim=1),
                torch.cat([prompt_values, own_values], dim=1),
            )
            outputs.append(_sdpa(next(queries), seen_keys, seen_values, chunk.sees, scaling))
    return [*outputs, query_HTD.new_zeros(query_HTD.shape[0], padding, query_HTD.shape[2])]


def _repeated(each_HTD: Tensor, groups: int) -> Tensor:
    """Keys or values of grouped-query attention, once for each head that reads them."""
    repeated: Tensor = repeat_kv(each_HTD[None], groups)[0]
    return repeated


def _sdpa(query_HND: Tensor, key_HTD: Tensor, value_HTD: Tensor, sees: Tensor | None, scaling: float | None) -> Tensor:
    """One call of the kernel; causal without a mask."""
    mask = None if sees is None else sees[None, None]
    attended = scaled_dot_product_attention(
        query_HND[None], key_HTD[None], value_HTD[None], attn_mask=mask, is_causal=sees is None, scale=scaling
    )
    return attended[0]


def _sees(prompt_tokens: int, response_tokens: Sequence[int]) -> Tensor:
    """All of the prompt, and of the responses the own one up to itself: bool[N, P + N]."""
    number_N = torch.repeat_interleave(torch.arange(len(response_tokens)), torch.tensor(response_tokens))
    own = (number_N[:, None] == number_N) & torch.ones(len(number_N), len(number_N), dtype=torch.bool).tril()
    return torch.cat([torch.ones(len(own), prompt_tokens, dtype=torch.bool), own], dim=1)
