"""Normalised similarity: cosines on one scale for every encoder. Retrieval's similarity thresholds are on this scale.

The cosines of one encoder are around 0, those of another between .7 and 1. Here, unrelated texts of the index have similarity around 0,
and identical texts 1: (c − u) / (1 − u), where u is a quantile of the cosines of the index. If all vectors share a component of length √u,
this is the cosine of the remainders, so it can be computed for sums of vectors too (`square_of_sum`).

Legend: Z quantiles.
"""

from bisect import bisect_left

import numpy as np

from graph.index.index import Index
from graph.store.vectors import QUANTILE_LEVELS_Z
from graph.types import Floats

USUAL_LEVEL = 0.05
"""The share of pairs of propositions with a cosine below u. Not one half: in documents about one subject most pairs are related, and with
the median as u, Recall@5 is lower (docs/log.md)."""
MAX_USUAL = 0.99
"""Upper bound on u, for an index whose texts are all identical."""
OPPOSITE = -0.9
"""The lowest similarity of two vectors whose sum is compared: the sum of opposite vectors has no direction."""
MIN_SQUARED_NORM = 0.05
"""The lower bound of |Σ w e|² ÷ (Σ w)²: its value for two vectors of equal weight and similarity OPPOSITE."""


def usual_cosine(index: Index) -> float:
    """u: the cosine with normalised similarity 0."""
    return min(float(index.data.cosine_quantiles_Z[bisect_left(QUANTILE_LEVELS_Z, USUAL_LEVEL)]), MAX_USUAL)


def normalised_similarity(index: Index, cosines: Floats) -> Floats:
    """(c − u) / (1 − u) for an array, of any shape, of cosines between vectors of the index: at most 1, and higher for a higher cosine."""
    return _scaled(cosines, np.float32(usual_cosine(index)))


def normalised_similarity_to(index: Index, queries_D: Floats, cosines: Floats) -> Floats:
    """As `normalised_similarity`, for cosines with one query's vector [D], or with those of n queries [n, D], over which the last axis of `cosines` runs.

    u is at most the median of a query's cosines with a sample of the propositions (`sample_SD`): where the propositions are more similar to
    each other than to any question (turns of one conversation, an encoder with separate prompts), the quantile of their cosines would be
    too high for a question.
    """
    usual = np.float32(usual_cosine(index))
    if len(index.sample_SD):
        usual = np.minimum(usual, np.median(index.sample_SD @ queries_D.T, axis=0)).astype(np.float32)
    return _scaled(cosines, usual)


def _scaled(cosines: Floats, usual: Floats | np.float32) -> Floats:
    return np.asarray((cosines - usual) * (1 / (1 - usual)).astype(np.float32), np.float32)


def pair_similarity(first: Floats, second: Floats, between: Floats) -> Floats:
    """cos(q, a + b) = (cos(q, a) + cos(q, b)) / √(2 + 2 cos(a, b)) for unit vectors a, b: the score of PropRAG's path of two propositions.

    Normalised similarities may take the place of cosines.

    >>> pair_similarity(np.array(0.6), np.array(0.8), np.array(0.0)).round(2).tolist()
    0.99
    """
    return np.asarray((first + second) / np.sqrt(2 + 2 * np.maximum(between, OPPOSITE)))


def square_of_sum(squares: Floats, weights: Floats | float, usual: float) -> Floats:
    """|Σ w e|² of unit vectors e without their shared component, given |Σ w e|² and Σ w of the vectors themselves.

    At least MIN_SQUARED_NORM (Σ w)², because a sum of opposite vectors has no direction.

    >>> vectors = np.array([[0.6, 0.8, 0], [0.6, 0, 0.8]])
    >>> float(square_of_sum(np.square(vectors.sum(axis=0)).sum(), np.float64(2), 0.36).round(6))
    2.0
    """
    most = np.square(weights)
    return np.maximum((squares - usual * most) / (1 - usual), MIN_SQUARED_NORM * most)
