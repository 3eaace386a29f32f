"""Ranking: the top k of a score array, ties by row."""

import numpy as np
from numpy.typing import NDArray

from graph.shared.types import Floats


def top_rows(scores_N: Floats, count: int) -> NDArray[np.int64]:
    """Rows of the `count` highest scores, best first; equal scores go by row, so that equal inputs rank equally.

    >>> top_rows(np.array([.2, .9, .9, .1], np.float32), 3).tolist()
    [1, 2, 0]
    """
    count = min(count, len(scores_N))
    if count == 0:
        return np.zeros(0, np.int64)
    lowest = np.partition(scores_N, len(scores_N) - count)[len(scores_N) - count]
    rows = np.flatnonzero(scores_N >= lowest)
    return rows[np.argsort(-scores_N[rows], kind="stable")][:count].astype(np.int64)


def rank_of(scores_N: Floats, row: int) -> int:
    """The place of a row in the ranking that `top_rows` gives, from 1.

    >>> rank_of(np.array([.2, .9, .9, .1], np.float32), 2)
    2
    """
    return int((scores_N > scores_N[row]).sum() + (scores_N[:row] == scores_N[row]).sum()) + 1
