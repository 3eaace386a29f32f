"""How cosines of an index are spread: what retrieval measures nearness by (graph/index/nearness.py), so that no constant is an encoder's.

Legend: N propositions, B pairs, D dimensions, Z quantiles.
"""

import numpy as np
from numpy.typing import NDArray

from graph.shared.types import Floats
from graph.store.segments import Rows

LEVELS_Z: NDArray[np.float64] = np.concatenate([np.arange(100) / 100, 0.99 + np.arange(1, 10) / 1000, [0.9999, 1.0]])
"""Shares of the pairs: every hundredth, then finer towards the nearest pairs."""
PAIRS, SEED = 16_384, 0
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
    rows_R, place_B = np.unique(np.concatenate([first_B, second_B]), return_inverse=True)
    vectors_RD = np.asarray(vectors_ND[rows_R], np.float64)
    cosines_B = np.einsum("bd,bd->b", vectors_RD[place_B[:PAIRS]], vectors_RD[place_B[PAIRS:]])
    return np.asarray(np.quantile(cosines_B, LEVELS_Z).round(DIGITS), np.float32)
