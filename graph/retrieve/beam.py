"""Beam search over propositions that share names, judged by attention-weighted paths (HLG Eq. 5–8). All steps are vectorised.

Legend: N propositions, D dimensions, F paths of the frontier, X ways on (path, next proposition), R distinct next propositions.
"""

from dataclasses import dataclass

import numpy as np

from graph.index import Index
from graph.retrieve.gather import expand_rows
from graph.retrieve.rank import top_rows
from graph.types import Floats, Ints

WIDTH, DEPTH = 50, 3
MAX_MENTIONS = 150
"""Names with more propositions lead everywhere; no path goes through them."""


@dataclass(frozen=True)
class Frontier:
    """Paths of one length: their propositions, Σ exp(c_i) e_i, Σ exp(c_i) c_i and score (Eq. 6–7)."""

    steps_FL: Ints
    sum_FD: Floats
    weighted_F: Floats
    scores_F: Floats


def search_paths(
    index: Index, starts: Ints, cosines_N: Floats, width: int = WIDTH, depth: int = DEPTH
) -> list[Frontier]:
    """The frontier of every length from 1 (the `width` best of `starts`) to at most `depth`, each best first.

    A path grows only by a proposition that shares a name with its last one, is not on it yet, and makes its score better.
    """
    starts = starts[top_rows(cosines_N[starts], width)]
    weights_F = np.exp(cosines_N[starts])
    sum_FD = weights_F[:, None] * index.data.proposition_vectors_ND[starts]
    frontiers = [Frontier(starts[:, None], sum_FD, weights_F * cosines_N[starts], cosines_N[starts])]
    while len(frontiers) < depth and len(frontiers[-1].steps_FL):
        frontiers.append(_grow(index, frontiers[-1], cosines_N, width))
    return frontiers


def best_path_scores(frontiers: list[Frontier], cosines_N: Floats) -> Floats:
    """For each proposition its own cosine, or the best score of a path that it is on: float32[N]."""
    best_N = cosines_N.astype(np.float32, copy=True)
    for frontier in frontiers:
        for column in frontier.steps_FL.T:
            np.maximum.at(best_N, column, frontier.scores_F)
    return best_N


def _grow(index: Index, frontier: Frontier, cosines_N: Floats, width: int) -> Frontier:
    """The best paths that are one proposition longer."""
    path_X, next_X = ways_on(index, frontier.steps_FL[:, -1])
    fresh_X = (frontier.steps_FL[path_X] != next_X[:, None]).all(axis=1)
    path_X, next_X = path_X[fresh_X], next_X[fresh_X]
    near_R, place_X = np.unique(next_X, return_inverse=True)
    vectors_RD = index.data.proposition_vectors_ND[near_R]
    weight_X = np.exp(cosines_N[next_X])
    weighted_X = frontier.weighted_F[path_X] + weight_X * cosines_N[next_X]
    overlap_X = (vectors_RD @ frontier.sum_FD.T)[place_X, path_X]
    square_F = np.square(frontier.sum_FD).sum(axis=1)
    length_X = np.sqrt(np.maximum(square_F[path_X] + 2 * weight_X * overlap_X + weight_X**2, 1e-12))
    scores_X = np.asarray(weighted_X / length_X, np.float32)
    better_X = np.flatnonzero(scores_X > frontier.scores_F[path_X])
    kept_X = better_X[top_rows(scores_X[better_X], width)]
    steps_FL = np.concatenate([frontier.steps_FL[path_X[kept_X]], next_X[kept_X, None]], axis=1)
    sum_FD = frontier.sum_FD[path_X[kept_X]] + weight_X[kept_X, None] * vectors_RD[place_X[kept_X]]
    return Frontier(steps_FL, sum_FD, weighted_X[kept_X], scores_X[kept_X])


def ways_on(index: Index, rows_F: Ints) -> tuple[Ints, Ints]:
    """Nbr(s) (Eq. 5) of every given proposition: (position in `rows_F`, neighbour), by position, then neighbour, each once."""
    block_EN = index.name_proposition_EN
    from_Y, name_Y = expand_rows(index.data.proposition_name_NE, rows_F)
    few_Y = np.diff(block_EN.indptr)[name_Y] <= MAX_MENTIONS
    from_Y, name_Y = from_Y[few_Y], name_Y[few_Y]
    way_X, next_X = expand_rows(block_EN, name_Y)
    path_X = from_Y[way_X]
    other_X = next_X != rows_F[path_X]
    if not other_X.any():
        return path_X[:0], next_X[:0]
    pairs = np.unique(np.stack([path_X[other_X], next_X[other_X]]), axis=1)
    return pairs[0], pairs[1]
