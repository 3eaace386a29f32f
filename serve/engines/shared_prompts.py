"""A prompt that many requests share is read once: K responses to it cost one reading and K writings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer


def read_shared(model: Any, ids_BT: Tensor, mask_BT: Tensor) -> DynamicCache | None:
    """Keys and values of all but the last token of each row, equal rows read once; `generate` goes on from there.

    None where no two rows are equal, and for models whose cache cannot be dealt out so (sliding windows, recurrent states).
    """
    first, rows = first_of_equals(ids_BT.tolist())
    if len(first) == len(rows) or ids_BT.shape[1] < 2:
        return None
    read = model.generate(
        input_ids=ids_BT[first],
        attention_mask=mask_BT[first],
        max_new_tokens=1,
        do_sample=False,
        return_dict_in_generate=True,
    )
    cache = read.past_key_values
    if type(cache) is not DynamicCache or any(type(layer) is not DynamicLayer for layer in cache.layers):
        return None
    cache.crop(-1)
    cache.batch_select_indices(torch.tensor(rows, device=ids_BT.device))
    return cache


def first_of_equals(rows: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
    """Where each distinct row stands first, and for every row the number of the distinct one that it equals.

    >>> first_of_equals([[7, 8], [9], [7, 8]])
    ([0, 1], [0, 1, 0])
    """
    numbers: dict[tuple[int, ...], int] = {}
    of_rows = [numbers.setdefault(tuple(row), len(numbers)) for row in rows]
    return [of_rows.index(number) for number in range(len(numbers))], of_rows
