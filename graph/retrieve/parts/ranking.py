"""Rows of an index: the best of many scores, the nearest to a vector, the entries of given rows.

Legend: P passages, N propositions, R given rows, X pairs found."""

from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graph.index.index import Index
from graph.store.columns.moved import ranges
from graph.store.vectors import Vectors
from graph.types import Floats, Ints, Passage, Scored

SAMPLE_SIZE, SPARE = 16_384, 16
"""The size of the sample that estimates the lowest of the top scores, and the number of scores that are added as a margin to that estimate."""


def top_rows(scores_N: Floats, count: int) -> NDArray[np.int64]:
    """Rows of the `count` highest scores, best first; ties are ordered by row, so that equal inputs give equal rankings.

    >>> top_rows(np.array([.2, .9, .9, .1], np.float32), 3).tolist()
    [1, 2, 0]
    """
    count = min(count, len(scores_N))
    if count == 0:
        return np.zeros(0, np.int64)
    rows = np.flatnonzero(scores_N >= _lowest_of_top(scores_N, count))
    return rows[np.argsort(-scores_N[rows], kind="stable")][:count].astype(np.int64)


def _lowest_of_top(scores_N: Floats, count: int) -> np.floating[Any]:
    """The lowest of the `count` highest scores. With many scores, a sample estimates a lower bound; if it is too high, all scores are partitioned."""
    sample = scores_N[:: max(1, len(scores_N) // SAMPLE_SIZE)]
    above = 2 * count * len(sample) // len(scores_N) + SPARE
    if above < len(sample) // 2 and len(scores_N) > 2 * SAMPLE_SIZE:
        likely = scores_N[scores_N >= np.partition(sample, -above)[-above]]
        if len(likely) >= count:
            scores_N = likely
    return cast("np.floating[Any]", np.partition(scores_N, len(scores_N) - count)[len(scores_N) - count])


def rank_of(scores_N: Floats, row: int) -> int:
    """The rank of a row in the order of `top_rows`, from 1.

    >>> rank_of(np.array([.2, .9, .9, .1], np.float32), 2)
    2
    """
    return int((scores_N > scores_N[row]).sum() + (scores_N[:row] == scores_N[row]).sum()) + 1


def nearest(vectors_ND: Vectors, query_D: Floats, count: int) -> tuple[Ints, Floats]:
    """The `count` rows of highest cosine, best first, ties by row, and their cosines, which are exact even with an ANN index."""
    candidates = vectors_ND.candidates(query_D[None], count)
    rows = None if candidates is None else candidates[0]
    cosines = vectors_ND @ query_D if rows is None else vectors_ND[rows] @ query_D
    best = top_rows(cosines, count)
    return (best if rows is None else rows[best]), cosines[best]


def passages_at(index: Index, rows_R: Ints, scores_R: Floats) -> tuple[Scored[Passage], ...]:
    """The passages in the given rows, in their order, with their scores."""
    pairs = zip(rows_R.tolist(), scores_R.tolist(), strict=True)
    return tuple(Scored(index.passage(row), score) for row, score in pairs)


def entries_in(block: sp.csr_array, rows_R: Ints) -> Ints:
    """How many entries each of the given rows has."""
    return np.asarray(block.indptr[rows_R + 1] - block.indptr[rows_R], np.int64)


def expand_rows(block: sp.csr_array, rows_R: Ints) -> tuple[Ints, Ints]:
    """All entries of the given rows: (position in `rows_R`, column), in order.

    >>> expand_rows(sp.csr_array(np.array([[1, 1], [0, 0], [0, 1]])), np.array([2, 0]))
    (array([0, 1, 1]), array([1, 0, 1]))
    """
    position_X = np.repeat(np.arange(len(rows_R)), entries_in(block, rows_R))
    entry_X = ranges(block.indptr[rows_R], block.indptr[rows_R + 1])
    return position_X, block.indices[entry_X].astype(np.int64)


def first_passages(index: Index, rows_R: Ints) -> list[tuple[int, int]]:
    """(passage, the first of the given propositions in it) for every passage that contains any, in the order of the propositions."""
    begin_R, end_R = np.searchsorted(index.data.occurrence_proposition_M, [rows_R, rows_R + 1])
    return _with_first_rows(index, ranges(begin_R, end_R), np.repeat(rows_R, end_R - begin_R))


def passage_of_each(index: Index, rows_R: Ints) -> list[tuple[int, int]]:
    """(passage, the first of the given propositions whose first passage it is), in the order of the propositions."""
    return _with_first_rows(index, np.searchsorted(index.data.occurrence_proposition_M, rows_R), rows_R)


def _with_first_rows(index: Index, occurrences_X: Ints, rows_X: Ints) -> list[tuple[int, int]]:
    """(passage, the first of its propositions) for the passages of some occurrences, given the proposition of each."""
    first: dict[int, int] = {}
    for passage, row in zip(index.data.occurrence_passage_M[occurrences_X].tolist(), rows_X.tolist(), strict=True):
        first.setdefault(passage, row)
    return list(first.items())


def best_in_passage(scores_N: Floats, passage_proposition_PN: sp.csr_array, otherwise_P: Floats) -> Floats:
    """The highest score among each passage's propositions; `otherwise_P` for passages without any."""
    indptr = passage_proposition_PN.indptr
    filled_P = np.flatnonzero(np.diff(indptr))
    best_P = otherwise_P.astype(np.float32, copy=True)
    if len(filled_P):
        best_P[filled_P] = np.maximum.reduceat(scores_N[passage_proposition_PN.indices], indptr[filled_P])
    return best_P


def worth_of_propositions(index: Index, similarity_N: Floats, own_P: Floats) -> Floats:
    """The mean of each proposition's similarity and its best passage's score: float32[N]."""
    data = index.data
    best_N = np.full(len(similarity_N), -np.inf, np.float32)
    np.maximum.at(best_N, data.occurrence_proposition_M, own_P[data.occurrence_passage_M])
    return np.asarray((similarity_N + best_N) / 2, np.float32)


def worth_in_passages(index: Index, rows_R: Ints, worth_R: Floats) -> Floats:
    """The highest value among each passage's propositions; propositions that are not in `rows_R` count as 0: float32[P]."""
    data = index.data
    worth_N = np.zeros(len(data.proposition_ids), np.float32)
    worth_N[rows_R] = worth_R
    return best_in_passage(worth_N, data.passage_proposition_PN, np.zeros(len(data.passage_ids), np.float32))
