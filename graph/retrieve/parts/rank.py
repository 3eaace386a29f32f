"""Ranking: the top k of a score array, ties by row."""

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from graph.shared.types import Floats

SAMPLED, SPARE = 16_384, 16
"""Scores that tell roughly how high the highest are, and how many more of them than are asked for."""


def top_rows(scores_N: Floats, count: int) -> NDArray[np.int64]:
    """Rows of the `count` highest scores, best first; equal scores go by row, so that equal inputs rank equally.

    >>> top_rows(np.array([.2, .9, .9, .1], np.float32), 3).tolist()
    [1, 2, 0]
    """
    count = min(count, len(scores_N))
    if count == 0:
        return np.zeros(0, np.int64)
    rows = np.flatnonzero(scores_N >= _lowest_of_top(scores_N, count))
    return rows[np.argsort(-scores_N[rows], kind="stable")][:count].astype(np.int64)


def _lowest_of_top(scores_N: Floats, count: int) -> np.floating[Any]:
    """The lowest of the `count` highest. Of many scores a sample tells from where on to look; where it tells too much, all are looked at."""
    sample = scores_N[:: max(1, len(scores_N) // SAMPLED)]
    above = 2 * count * len(sample) // len(scores_N) + SPARE
    if above < len(sample) // 2 and len(scores_N) > 2 * SAMPLED:
        likely = scores_N[scores_N >= np.partition(sample, -above)[-above]]
        if len(likely) >= count:
            scores_N = likely
    return cast("np.floating[Any]", np.partition(scores_N, len(scores_N) - count)[len(scores_N) - count])


def rank_of(scores_N: Floats, row: int) -> int:
    """The place of a row in the ranking that `top_rows` gives, from 1.

    >>> rank_of(np.array([.2, .9, .9, .1], np.float32), 2)
    2
    """
    return int((scores_N > scores_N[row]).sum() + (scores_N[:row] == scores_N[row]).sum()) + 1
