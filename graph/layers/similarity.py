"""The similarity graph of one layer: k nearest neighbours by cosine, from τ up (GraphMPA §3.1, Eq. 1 and 3).

Up to FLAT_LIMIT nodes the graph is exact and follows from the vectors alone, bit by bit: nodes are found by matrix products, whose
last bits depend on what else is multiplied, and every cosine that decides is computed once more, pair by pair. So a graph that
gains or loses nodes is searched for those alone and is the one that a search for all would give.

Legend: N nodes, T nodes of a graph known before, D dimensions, K found for each, R rows to search for, B rows of a batch, X pairs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from graph.shared.types import Floats, Ints
from graph.store.segments import Rows

FLAT_LIMIT = 100_000
SPARE = 8
"""Found beyond k, so that those whose cosines are nearly equal to the last one's are among them."""
SLACK = 1e-5
"""More than a cosine out of a matrix product is ever wrong by."""
BATCH_ROWS, BATCH_PAIRS = 64, 8_192


@dataclass(frozen=True)
class KnownGraph:
    """A similarity graph of vectors some of which are searched again: its edges, and where its nodes are now (−1: gone).

    Nodes stand in the same order as before. `graph` was made with the same k and τ.
    """

    graph: sp.csr_array
    place_T: Ints


@dataclass(frozen=True)
class _Pairs:
    """Directed pairs of nodes and their cosines."""

    row_X: Ints
    other_X: Ints
    cosine_X: Floats

    @classmethod
    def join(cls, parts: list["_Pairs"]) -> "_Pairs":
        columns = zip(*((part.row_X, part.other_X, part.cosine_X) for part in parts), strict=True)
        return cls(*(np.concatenate(column) for column in columns))

    def only(self, chosen: Any) -> "_Pairs":
        return _Pairs(self.row_X[chosen], self.other_X[chosen], self.cosine_X[chosen])


def similarity_graph(
    vectors_ND: Rows, neighbours: int, min_similarity: float, known: KnownGraph | None = None
) -> sp.csr_array:
    """Symmetric float32 CSR[N, N] of cosines: i–j where either is among the other's k nearest and cosine ≥ τ.

    `vectors_ND` are unit rows. No node neighbours itself, however many duplicates it has; an edge stands once in each
    direction with one weight; of equally near nodes the first ones count. What is `known` already is not searched again.
    """
    count = len(vectors_ND)
    if count < 2:
        return sp.csr_array((count, count), dtype=np.float32)
    if known is None or count > FLAT_LIMIT:
        found = _nearest_of_all(vectors_ND, neighbours, min_similarity)
    else:
        found = _nearest_again(vectors_ND, neighbours, min_similarity, known)
    edges = sp.coo_array((found.cosine_X, (found.row_X, found.other_X)), shape=(count, count)).tocsr()
    return sp.csr_array(edges.maximum(edges.T))


def _nearest_of_all(vectors_ND: Rows, neighbours: int, min_similarity: float) -> _Pairs:
    """Every node with its nearest: exact up to FLAT_LIMIT nodes, without a copy of them if they lie in one segment; by HNSW from there on."""
    import faiss

    vectors_ND, count = np.ascontiguousarray(vectors_ND, np.float32), len(vectors_ND)
    asked = min(count, neighbours + 1 + SPARE)
    if count <= FLAT_LIMIT:
        cosines_NK, found_NK = faiss.knn(vectors_ND, vectors_ND, asked, metric=faiss.METRIC_INNER_PRODUCT)
    else:
        index: Any = faiss.IndexHNSWFlat(vectors_ND.shape[1], 32, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction, index.hnsw.efSearch = 80, 64
        index.add(vectors_ND)
        cosines_NK, found_NK = index.search(vectors_ND, asked)
    rows_NK = np.broadcast_to(np.arange(count)[:, None], found_NK.shape)
    likely_NK = (found_NK != rows_NK) & (found_NK >= 0) & (cosines_NK >= min_similarity - SLACK)
    pairs = _measured(vectors_ND, rows_NK[likely_NK], found_NK[likely_NK], min_similarity)
    found = _best(pairs, neighbours)
    if asked == count or count > FLAT_LIMIT:
        return found
    unsure = np.flatnonzero(cosines_NK[:, -1] >= _last_cosines(found, count, neighbours, min_similarity) - SLACK)
    return _best(_Pairs.join([pairs, *_near(vectors_ND, unsure, neighbours, min_similarity)]), neighbours)


def _nearest_again(vectors_ND: Rows, neighbours: int, min_similarity: float, known: KnownGraph) -> _Pairs:
    """Every node with its nearest: those of new nodes, and of nodes that had k and lost one, are searched for.

    A node's row in the graph holds its own nearest and those nodes that it is among the nearest of; the first k are its own.
    """
    count, place_T = len(vectors_ND), known.place_T
    before = known.graph.tocoo()
    row_X, other_X = before.coords
    edges = _Pairs(row_X, other_X, before.data)
    crowded_X = (np.diff(known.graph.indptr) > neighbours)[edges.row_X]
    own = _Pairs.join([edges.only(~crowded_X), _best(edges.only(crowded_X), neighbours)])
    full_T = np.bincount(own.row_X, minlength=len(place_T)) == neighbours
    short = own.row_X[full_T[own.row_X] & (place_T[own.other_X] < 0)]
    kept_T = place_T >= 0
    kept_T[short] = False
    own = own.only(kept_T[own.row_X] & (place_T[own.other_X] >= 0))
    own = _Pairs(place_T[own.row_X], place_T[own.other_X], own.cosine_X)
    searched = np.setdiff1d(np.arange(count), place_T[kept_T])
    if 4 * len(searched) > count:
        return _nearest_of_all(vectors_ND, neighbours, min_similarity)
    least_N = _last_cosines(own, count, neighbours, min_similarity)
    least_N[searched] = np.inf
    near = _Pairs.join([own.only(slice(0)), *_near(vectors_ND, searched, neighbours, min_similarity, least_N)])
    gained_X = np.isin(own.row_X, near.row_X)
    return _Pairs.join([own.only(~gained_X), _best(_Pairs.join([own.only(gained_X), near]), neighbours)])


def _near(
    vectors_ND: Rows, rows_R: Ints, neighbours: int, min_similarity: float, least_N: Floats | None = None
) -> Iterator[_Pairs]:
    """Pairs, both ways, that hold the nearest of the given rows, and all in which a row is nearer to another than its `least_N`."""
    for start in range(0, len(rows_R), BATCH_ROWS):
        rows_B = rows_R[start : start + BATCH_ROWS]
        cosines_BN = np.ascontiguousarray((vectors_ND @ vectors_ND[rows_B].T).T)
        cosines_BN[np.arange(len(rows_B)), rows_B] = -np.inf
        last_B = np.full(len(rows_B), min_similarity)
        if neighbours < len(vectors_ND):
            last_B = np.maximum(last_B, np.partition(cosines_BN, -neighbours, axis=1)[:, -neighbours])
        likely_BN = cosines_BN >= last_B[:, None] - SLACK
        if least_N is not None:
            likely_BN |= cosines_BN >= least_N - SLACK
        place_X, other_X = np.nonzero(likely_BN)
        one_way = _measured(vectors_ND, rows_B[place_X], other_X, min_similarity)
        yield one_way
        yield _Pairs(one_way.other_X, one_way.row_X, one_way.cosine_X)


def _last_cosines(found: _Pairs, count: int, neighbours: int, min_similarity: float) -> Floats:
    """From which cosine another node would be among a node's nearest: its k-th, or τ while it has fewer: float[N]."""
    least_N = np.full(count, np.inf)
    np.minimum.at(least_N, found.row_X, found.cosine_X)
    full_N = np.bincount(found.row_X, minlength=count) >= neighbours
    return np.where(full_N, least_N, min_similarity)


def _measured(vectors_ND: Rows, row_X: Ints, other_X: Ints, min_similarity: float) -> _Pairs:
    """The pairs that are similar enough, with their cosines: the same bits for a pair whatever else is measured, both ways."""
    cosine_X = np.empty(len(row_X), np.float32)
    for start in range(0, len(row_X), BATCH_PAIRS):
        part = slice(start, start + BATCH_PAIRS)
        np.einsum("xd,xd->x", vectors_ND[row_X[part]], vectors_ND[other_X[part]], out=cosine_X[part])
    np.clip(cosine_X, -1, 1, out=cosine_X)
    return _Pairs(row_X, other_X, cosine_X).only((cosine_X >= min_similarity - 1e-6) & (cosine_X > 0))


def _best(pairs: _Pairs, neighbours: int) -> _Pairs:
    """The k nearest of each row, each once; of equally near ones the first."""
    order = np.lexsort((pairs.other_X, -pairs.cosine_X, pairs.row_X))
    row_X, other_X = pairs.row_X[order], pairs.other_X[order]
    again = np.flatnonzero((np.diff(row_X) == 0) & (np.diff(other_X) == 0)) + 1
    once = pairs.only(np.delete(order, again))
    rank_X = np.arange(len(once.row_X)) - np.searchsorted(once.row_X, once.row_X)
    return once.only(rank_X < neighbours)
