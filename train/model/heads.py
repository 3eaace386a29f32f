"""The output head in chunks: log-probabilities of given tokens while the logits of only a few are alive at a time.

Called by train/model/logps.py and train/model/packing.py between a model's states and its losses. A vocabulary of 152k makes the float32 logits
of 1,000 tokens 600 MB, and their gradient as much again; a chunk's are made, used and dropped, forward and backward.
Legend: B sequences, C positions that predict, N tokens asked for, D hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

HEAD_CHUNK_TOKENS = 512
BENDS = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")
"""Settings of models that bend their logits behind the head."""


def logps_at(
    model: Any, inputs: Mapping[str, Any], sequences_N: Tensor, positions_N: Tensor, token_ids_N: Tensor
) -> Tensor:
    """log π(token n | all that position n of its sequence sees) of `model(**inputs)`: float32[N].

    The forward pass goes through `model` as it was handed in, so a wrapper around it (DDP) sees it. A model that bends
    its logits behind the head (Gemma 2) makes those of all N at once.
    """
    columns_C, column_N = torch.unique(positions_N, return_inverse=True)
    base = unwrapped(model)
    if any(getattr(base.config.get_text_config(), name, None) for name in BENDS):
        logits_BCV = model(**inputs, logits_to_keep=columns_C, use_cache=False).logits
        return _logps(nn.Identity(), logits_BCV[sequences_N, column_N], token_ids_N)
    with without_head(base) as head:
        states_BCD = model(**inputs, logits_to_keep=columns_C, use_cache=False).logits
    return chunked_logps(head, states_BCD[sequences_N, column_N], token_ids_N)


def unwrapped(model: Any) -> Any:
    """The model itself where DDP holds it."""
    return getattr(model, "module", model)


def chunked_logps(head: nn.Module, states_ND: Tensor, token_ids_N: Tensor) -> Tensor:
    """log softmax(head(state n)) at token n: float32[N].

    The logits of several chunks are each computed again for the gradient; those of a single one are kept.
    """
    states_ND = states_ND.to(cast(Tensor, head.weight).dtype)
    if len(states_ND) <= HEAD_CHUNK_TOKENS:
        return _logps(head, states_ND, token_ids_N)
    chunks = zip(torch.split(states_ND, HEAD_CHUNK_TOKENS), torch.split(token_ids_N, HEAD_CHUNK_TOKENS), strict=True)
    return torch.cat([checkpoint(_logps, head, *chunk, use_reentrant=False) for chunk in chunks])


class PassThroughHead(nn.Module):
    """Stands in a head's place and gives the states as they come; models that ask (Mamba, BERT) find the head's weight and bias."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self._heads = (head,)

    @property
    def weight(self) -> Tensor:
        """The head's."""
        return cast(Tensor, self._heads[0].weight)

    @property
    def bias(self) -> Tensor | None:
        """The head's."""
        return cast("Tensor | None", getattr(self._heads[0], "bias", None))

    def forward(self, states: Tensor) -> Tensor:
        return states


@contextmanager
def without_head(model: Any) -> Iterator[nn.Module]:
    """Have `model` return the states that its head would read in place of logits; gives the head, and puts it back."""
    head = model.get_output_embeddings()
    model.set_output_embeddings(PassThroughHead(head))
    try:
        yield head
    finally:
        model.set_output_embeddings(head)


def _logps(head: nn.Module, states_ND: Tensor, token_ids_N: Tensor) -> Tensor:
    return -cross_entropy(head(states_ND[None])[0].float(), token_ids_N, reduction="none")
