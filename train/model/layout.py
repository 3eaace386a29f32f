"""How groups of responses are laid out for a forward pass: behind one copy of their prompt, or one sequence a response.

A layout is a function of a model and groups to the log-probability of each response; SFT and preference training are given one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from graph.shared.console import say
from train.model.attention import SHARED_PREFIX, use_shared_prefix_attention
from train.model.heads import unwrapped
from train.model.packing import TokenizedGroup, can_pack, pack_rows, packed_logps, plain_logps

LogpsOf = Callable[[Any, Sequence[TokenizedGroup]], Tensor]
"""A model and groups to the log-probability of each of their responses, in order: packed or plain."""


def choose_layout(model: Any, longest_tokens: int, row_tokens: int | None) -> LogpsOf:
    """Packed if the model's attention can do it; otherwise plain, with a line that says why.

    Where it can be done by a mask, the attention that computes no hidden pairs is tried, and kept if it is right.
    """
    if reason := can_pack(model, longest_tokens):
        say(f"plain layout, one sequence a response: {reason}")
        return plain_layout
    if model.config.get_text_config()._attn_implementation == "sdpa":
        use_shared_prefix_attention(model)
        if can_pack(model, longest_tokens):
            model.set_attn_implementation("sdpa")
    return packed_layout(row_tokens)


def packed_layout(row_tokens: int | None) -> LogpsOf:
    """Responses behind one copy of their prompt, several prompts to a row of `row_tokens`.

    None: all in one row where the attention computes no hidden pairs, else rows of the longest group's length.
    """
    return partial(_packed, row_tokens=row_tokens)


def plain_layout(model: Any, groups: Sequence[TokenizedGroup]) -> Tensor:
    """One sequence a response (a LogpsOf)."""
    return plain_logps(model, groups)


def _packed(model: Any, groups: Sequence[TokenizedGroup], row_tokens: int | None) -> Tensor:
    tokens = [group.tokens for group in groups]
    in_one = unwrapped(model).config.get_text_config()._attn_implementation == SHARED_PREFIX
    return packed_logps(model, pack_rows(groups, row_tokens or (sum(tokens) if in_one else max(tokens))))
