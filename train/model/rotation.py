"""Rotary positions that turn otherwise in a longer sequence: which rows may stand together, and be compared.

Phi-3's "longrope" has one set of angles for sequences up to a limit and another above it; "dynamic" computes new ones for every length
above it. transformers chooses by the largest position of a whole batch, so a row's log-probability would hang on the rows beside it.
A row alone is right (it is what a server reads), so rows on both sides of the limit are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graph.shared.errors import UserError


@dataclass(frozen=True)
class RotationLimit:
    """Rows of up to `tokens` are turned alike; longer ones alike among themselves only if `beyond`."""

    kind: str
    tokens: int
    beyond: bool


def rotation_limit(config: Any) -> RotationLimit | None:
    """The limit of a model's rotary positions; None where a row's length changes nothing."""
    config = config.get_text_config()
    given: Mapping[str, Any] = getattr(config, "rope_parameters", None) or {}
    for rope in [given, *(each for each in given.values() if isinstance(each, Mapping))]:
        kind = rope.get("rope_type", "default")
        if kind == "longrope":
            return RotationLimit(kind, int(rope["original_max_position_embeddings"]), beyond=True)
        if "dynamic" in kind:
            return RotationLimit(kind, int(config.max_position_embeddings), beyond=False)
    return None


def check_rotation(config: Any, lengths_tokens: Sequence[int]) -> None:
    """UserError where rows of these lengths (prompt and response) would be turned otherwise beside each other than alone."""
    limit = rotation_limit(config)
    if limit is None or not lengths_tokens or max(lengths_tokens) <= limit.tokens:
        return
    if limit.beyond and min(lengths_tokens) > limit.tokens:
        return
    raise UserError(
        f"rows of {min(lengths_tokens):,} to {max(lengths_tokens):,} tokens; the {limit.kind} positions of this model "
        f"({config.model_type}) turn otherwise above {limit.tokens:,}",
        "rows on one side of that" if limit.beyond else f"at most {limit.tokens:,} tokens",
        f"leave out the rows above {limit.tokens:,} tokens, or shorten their contexts",
    )
