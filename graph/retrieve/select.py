"""Selectors: which of the suggested propositions are worth keeping for a question (ToPG Eq. 2). One signature for all of them."""

from collections.abc import Callable

import numpy as np

from graph.types import Floats, Ints

Select = Callable[[Ints, Floats], Ints]
"""Rows of candidate propositions and the cosines of all propositions with the question -> the rows kept, in the order given."""

MIN_COSINE = 0.3
MIN_SHARE_OF_BEST = 0.6


def select_by_threshold(candidates: Ints, cosines_N: Floats) -> Ints:
    """Keep candidates whose cosine is at least 0.3 and at least 0.6 of the best candidate's; duplicates once."""
    if len(candidates) == 0:
        return candidates
    cosines = cosines_N[candidates]
    kept = candidates[cosines >= max(MIN_COSINE, MIN_SHARE_OF_BEST * float(cosines.max()))]
    _, first = np.unique(kept, return_index=True)
    return kept[np.sort(first)]
