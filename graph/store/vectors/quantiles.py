"""How cosines of an index are spread: what retrieval measures nearness by (graph/index/nearness.py), so that no constant is an encoder's.

Legend: N propositions, B pairs, D dimensions, Z quantiles.
"""

import numpy as np
from numpy.typing import NDArray

from graph.shared.types import Floats
from graph.store.vectors.matrix import Rows, Vectors

LEVELS_Z: NDArray[np.float64] = np.concatenate([np.arange(100) / 100, 0.99 + np.arange(1, 10) / 1000, [0.9999, 1.0]])
"""Shares of the pairs: every hundredth, then finer towards the nearest pairs."""
PAIRS, SEED = 16_384, 0
BLOCK = 1024
"""Pairs at a time: what they take stays in the processor's cache."""
DIGITS = 5
"""Cosines are rounded to so many, so that nothing of the order in which they are summed is kept."""


def cosine_quantiles(vectors_ND: Rows) -> Floats:
    """The cosines of unlike rows at LEVELS_Z, of at most PAIRS pairs drawn evenly with a fixed seed: float32[Z]; zeros for less than two rows.

    The same rows in the same order give the same bytes, in whatever segments they lie.
    """
    count = len(vectors_ND)
    if count < 2:
        return np.zeros(len(LEVELS_Z), np.float32)
    draws = np.random.default_rng(SEED)
    first_B = draws.permutation(np.arange(PAIRS) * count // PAIRS if count > PAIRS else np.arange(PAIRS) % count)
    second_B = (first_B + draws.integers(1, count, PAIRS)) % count
    blocks = [slice(start, start + BLOCK) for start in range(0, PAIRS, BLOCK)]
    cosines = [_products(vectors_ND[first_B[block]], vectors_ND[second_B[block]]) for block in blocks]
    if isinstance(vectors_ND, Vectors):
        vectors_ND.let_go()
    return np.asarray(np.quantile(np.concatenate(cosines), LEVELS_Z).round(DIGITS), np.float32)


def _products(left_BD: Floats, right_BD: Floats) -> NDArray[np.float64]:
    """The inner products of rows with rows, summed in float64."""
    return np.asarray(np.einsum("bd,bd->b", left_BD, right_BD, dtype=np.float64))
