"""The propositions that a question's rows are made of: its gold and own passages', and hard negatives that were searched out.

Legend: N propositions, n candidates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data_synth.relevance.types import FoundBy
from graph.retrieve.learned.features import View
from graph.retrieve.parts.rank import top_rows
from graph.shared.types import Ints


@dataclass(frozen=True)
class Candidates:
    """Propositions (rows, each once) and why each is a candidate."""

    rows_n: Ints
    found_by: tuple[FoundBy, ...]


def find_candidates(
    view: View, gold_rows: Ints, own_rows: Ints, allowed_N: NDArray[np.bool_], negatives: int
) -> Candidates:
    """All of `gold_rows`, then what `own_rows` add, then hard negatives: the first half by the walk, the rest by cosine.

    `gold_rows` are the propositions of the gold passages. Hard negatives are `negatives` propositions (fewer only where no more
    are allowed) outside both.
    """
    free_N = allowed_N.copy()
    free_N[gold_rows] = free_N[own_rows] = False
    walked = best_allowed(view.mass_N, free_N & (view.mass_N > 0), negatives // 2)
    free_N[walked] = False
    nearest = best_allowed(view.near_N, free_N, negatives - len(walked))
    own = np.setdiff1d(own_rows, gold_rows)
    groups: list[tuple[FoundBy, Ints]] = [("gold", gold_rows), ("own", own), ("walk", walked), ("cosine", nearest)]
    return Candidates(
        np.concatenate([rows for _, rows in groups]),
        tuple(found_by for found_by, rows in groups for _ in rows),
    )


def best_allowed(scores_N: NDArray[np.float32], allowed_N: NDArray[np.bool_], count: int) -> Ints:
    """The `count` allowed rows with the highest scores, best first."""
    allowed = np.flatnonzero(allowed_N)
    return allowed[top_rows(scores_N[allowed], count)]
