"""Nearness: cosines on one scale for every encoder. All constants of retrieval that are compared with how near two texts are, are on it.

The cosines of one encoder lie around 0, those of another between .7 and 1. What two texts of the index that have nothing to do with each
other have is 0 here, and what a text has with itself is 1: (c − u) / (1 − u), u being a quantile of the cosines of the index. If every
vector shares a part of length √u, this is the cosine of what is left of them, so sums of vectors can be measured in it too (`square_of_sum`).

Legend: Z quantiles.
"""

from bisect import bisect_left

import numpy as np

from graph.index.index import Index
from graph.shared.types import Floats
from graph.store.quantiles import LEVELS_Z

USUAL = 0.5
"""The share of pairs that are no nearer than texts which have nothing to do with each other."""
MOST_USUAL = 0.99
"""Where all texts are the same text, any other is as far as it can be."""
FARTHEST = -1.0


def usual_cosine(index: Index) -> float:
    """u: the cosine that has nearness 0."""
    return min(float(index.data.cosine_quantiles_Z[bisect_left(LEVELS_Z, USUAL)]), MOST_USUAL)


def nearness(index: Index, cosines: Floats) -> Floats:
    """(c − u) / (1 − u) of cosines of any shape, from FARTHEST to 1."""
    usual = usual_cosine(index)
    return np.maximum((cosines - np.float32(usual)) / np.float32(1 - usual), np.float32(FARTHEST))


def cosine_at(index: Index, near: float) -> float:
    """The inverse: the cosine that has this nearness."""
    usual = usual_cosine(index)
    return usual + (1 - usual) * near


def square_of_sum(index: Index, squares: Floats, weights: Floats) -> Floats:
    """|Σ w e|² of unit vectors e and weights w, given with their sum Σ w, of what is left of them without the shared part."""
    usual = np.float32(usual_cosine(index))
    return np.asarray((squares - usual * np.square(weights)) / (1 - usual), np.float32)
