"""Nearness: cosines on one scale for every encoder. All constants of retrieval that are compared with how near two texts are, are on it.

The cosines of one encoder lie around 0, those of another between .7 and 1. What texts of the index that have nothing to do with each other
have is 0 here, and what a text has with itself is 1: (c − u) / (1 − u), u being a quantile of the cosines of the index. If all vectors
share a part of length √u, this is the cosine of what is left of them, so it can be had of sums of vectors too (`square_of_sum`).

Legend: Z quantiles.
"""

from bisect import bisect_left

import numpy as np

from graph.index.index import Index
from graph.store.vectors import QUANTILE_LEVELS_Z
from graph.types import Floats

USUAL = 0.05
"""The share of pairs of propositions that are farther from each other than u. Not half of them: in documents about one thing most pairs
have something to do with each other, and with u their median Recall@5 is lower (docs/log.md)."""
MOST_USUAL = 0.99
"""Where all texts are the same text, any other is as far as it can be."""
LEAST_SQUARE = 0.05
"""As of two vectors of nearness −.9 (links.py)."""


def usual_cosine(index: Index) -> float:
    """u: the cosine that has nearness 0."""
    return min(float(index.data.cosine_quantiles_Z[bisect_left(QUANTILE_LEVELS_Z, USUAL)]), MOST_USUAL)


def normalised_similarity(index: Index, cosines: Floats) -> Floats:
    """(c − u) / (1 − u) of cosines of the index's own vectors, of any shape: 1 at most, and the same order."""
    return _scaled(cosines, np.float32(usual_cosine(index)))


def normalised_similarity_to(index: Index, queries_D: Floats, cosines: Floats) -> Floats:
    """The same of cosines with a query's vector [D], or those of queries [n, D], which are the last axis of `cosines`.

    u is at most the median of what a query has with the propositions: where these are more like each other than like any question (turns
    of one conversation, an encoder with a prompt for each), what is usual among them is not so for a question.
    """
    usual = np.float32(usual_cosine(index))
    if len(index.sample_SD):
        usual = np.minimum(usual, np.median(index.sample_SD @ queries_D.T, axis=0)).astype(np.float32)
    return _scaled(cosines, usual)


def _scaled(cosines: Floats, usual: Floats | np.float32) -> Floats:
    return np.asarray((cosines - usual) * (1 / (1 - usual)).astype(np.float32), np.float32)


def square_of_sum(squares: Floats, weights: Floats | float, usual: float) -> Floats:
    """|Σ w e|² of what unit vectors e have apart from the part that they share, given |Σ w e|² and Σ w of the vectors themselves.

    At least LEAST_SQUARE (Σ w)²: the sum of opposites points nowhere.

    >>> vectors = np.array([[0.6, 0.8, 0], [0.6, 0, 0.8]])
    >>> float(square_of_sum(np.square(vectors.sum(axis=0)).sum(), np.float64(2), 0.36).round(6))
    2.0
    """
    most = np.square(weights)
    return np.maximum((squares - usual * most) / (1 - usual), LEAST_SQUARE * most)
