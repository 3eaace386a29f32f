"""Small vectorised steps that several strategies share.

Legend: P passages, N propositions, R rows asked for, X pairs found.
"""

import numpy as np
import scipy.sparse as sp

from graph.index.index import Index
from graph.shared.types import Floats, Ints


def entries_in(block: sp.csr_array, rows_R: Ints) -> Ints:
    """How many entries each of the given rows has."""
    return np.asarray(block.indptr[rows_R + 1] - block.indptr[rows_R], np.int64)


def expand_rows(block: sp.csr_array, rows_R: Ints) -> tuple[Ints, Ints]:
    """All entries of the given rows: (position in `rows_R`, column), in order.

    >>> expand_rows(sp.csr_array(np.array([[1, 1], [0, 0], [0, 1]])), np.array([2, 0]))
    (array([0, 1, 1]), array([1, 0, 1]))
    """
    starts_R, counts_R = block.indptr[rows_R].astype(np.int64), entries_in(block, rows_R)
    position_X = np.repeat(np.arange(len(rows_R)), counts_R)
    first_X = np.repeat(starts_R - (np.cumsum(counts_R) - counts_R), counts_R)
    return position_X, block.indices[first_X + np.arange(len(position_X))].astype(np.int64)


def best_in_passage(scores_N: Floats, passage_proposition_PN: sp.csr_array, otherwise_P: Floats) -> Floats:
    """The highest score among each passage's propositions; passages without any get their entry of `otherwise_P`."""
    indptr = passage_proposition_PN.indptr
    filled_P = np.flatnonzero(np.diff(indptr))
    best_P = otherwise_P.astype(np.float32, copy=True)
    if len(filled_P):
        best_P[filled_P] = np.maximum.reduceat(scores_N[passage_proposition_PN.indices], indptr[filled_P])
    return best_P


def worth_of_propositions(index: Index, near_N: Floats, own_P: Floats) -> Floats:
    """Mean of each proposition's nearness and the best score of a passage that it stands in: float32[N]."""
    data = index.data
    best_N = np.full(len(near_N), -np.inf, np.float32)
    np.maximum.at(best_N, data.occurrence_proposition_M, own_P[data.occurrence_passage_M])
    return np.asarray((near_N + best_N) / 2, np.float32)


def worth_in_passages(index: Index, rows_R: Ints, worth_R: Floats) -> Floats:
    """For each passage, the most that one of the given propositions in it is worth; 0 without one: float32[P]."""
    data = index.data
    worth_N = np.zeros(len(data.proposition_ids), np.float32)
    worth_N[rows_R] = worth_R
    return best_in_passage(worth_N, data.passage_proposition_PN, np.zeros(len(data.passage_ids), np.float32))
