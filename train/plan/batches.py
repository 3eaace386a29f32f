"""How rows come together in batches, and how much of a batch is padding: by a shuffle of our own, so an estimate of the run's."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from train.model.packing import TokenizedGroup, first_fit


def shuffled_batches(rows: int, batch: int, seed: int) -> list[list[int]]:
    """The numbers of the rows of one pass, batch by batch.

    >>> [len(batch) for batch in shuffled_batches(5, 2, seed=0)]
    [2, 2, 1]
    """
    order = random.Random(seed).sample(range(rows), rows)
    return [order[start : start + batch] for start in range(0, rows, batch)]


def positions(groups: Sequence[TokenizedGroup], packed: bool, row_tokens: int | None) -> int:
    """Tokens of a batch with its padding: packed groups in rows of `row_tokens` (None: in one), or a sequence a response, all as long as the longest."""
    if not packed:
        lengths = [len(group.prompt) + len(response) for group in groups for response in group.responses]
        return len(lengths) * max(lengths)
    rows = first_fit(groups, row_tokens or sum(group.tokens for group in groups))
    return len(rows) * max(sum(groups[number].tokens for number in row) for row in rows)


def updates(
    rows: int, batch: int, processes: int, accumulation: int, epochs: float, max_steps: int | None
) -> tuple[int, float]:
    """(steps of the optimiser, passes over the data), as transformers' Trainer counts them.

    >>> updates(12, 4, processes=1, accumulation=2, epochs=2, max_steps=None)
    (4, 2.0)
    """
    of_each = math.ceil(math.ceil(rows / batch) / processes)
    a_pass = math.ceil(of_each / accumulation)
    steps = max_steps or math.ceil(epochs * a_pass)
    whole, rest = divmod(steps, a_pass)
    return steps, whole + min(1.0, rest * accumulation / of_each)
