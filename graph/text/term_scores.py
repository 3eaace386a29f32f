"""BM25 of all passages for a question's terms. What frequent terms add is kept, as every other question has some of them.

Legend: P passages, W terms.
"""

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from graph.shared.types import Floats, Ints
from graph.store.columns.moved import Block, taken
from graph.text.bm25 import bm25

FREQUENT = 8
"""A term is frequent that stands in one passage of so many."""
MOST_KEPT_BYTES = 128 << 20
"""Of what frequent terms add; that of the one that was asked for longest ago goes first."""


class TermScores:
    """The scores of one index. Any number of threads may ask."""

    def __init__(self, count_WP: Block, texts_W: Ints, idf_W: Floats, norm_P: NDArray[np.float64]) -> None:
        self._count_WP, self._texts_W, self._idf_W, self._norm_P = count_WP, texts_W, idf_W, norm_P
        self._kept: OrderedDict[int, Floats] = OrderedDict()
        self._lock = Lock()

    def sum(self, rows: Sequence[int]) -> Floats:
        """BM25 of every passage for the terms in `rows`, a repeated one counted as often: float32[P]."""
        scores_P = np.zeros(self._count_WP.shape[1], np.float32)
        for row in rows:
            if FREQUENT * self._texts_W[row] >= len(scores_P):
                scores_P += self._frequent(row)
            else:
                self._add(row, scores_P)
        return scores_P

    def _add(self, row: int, scores_P: Floats) -> None:
        """Add what a term adds to each of the passages that it stands in."""
        found = taken(self._count_WP, np.array([row]))
        scores_P[found.indices] += bm25(found.data, self._idf_W[row], self._norm_P[found.indices])

    def _frequent(self, row: int) -> Floats:
        """What a frequent term adds to every passage: float32[P], kept."""
        with self._lock:
            if row in self._kept:
                self._kept.move_to_end(row)
                return self._kept[row]
        worth_P = np.zeros(self._count_WP.shape[1], np.float32)
        self._add(row, worth_P)
        with self._lock:
            self._kept[row] = worth_P
            while len(self._kept) > max(1, MOST_KEPT_BYTES // max(1, worth_P.nbytes)):
                self._kept.popitem(last=False)
        return worth_P
