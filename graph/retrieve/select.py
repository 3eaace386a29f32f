"""Selectors: which of the suggested propositions are worth keeping for a question (ToPG Eq. 2). One signature for all of them."""

from collections.abc import Callable

import numpy as np

from graph.index import Index
from graph.retrieve.query import Query
from graph.types import Ints

Select = Callable[[Index, Query, Ints], Ints]
"""Rows of candidate propositions, best first -> the rows kept, in that order, each once. An empty choice is a choice."""

MIN_COSINE = 0.3
MIN_SHARE_OF_BEST = 0.6


def select_by_threshold(index: Index, query: Query, candidates: Ints) -> Ints:
    """Keep candidates whose cosine is at least 0.3 and at least 0.6 of the best candidate's; duplicates once."""
    if len(candidates) == 0:
        return candidates
    cosines = index.data.proposition_vectors_ND[candidates] @ query.vector_D
    kept = candidates[cosines >= max(MIN_COSINE, MIN_SHARE_OF_BEST * float(cosines.max()))]
    _, first = np.unique(kept, return_index=True)
    return kept[np.sort(first)]
