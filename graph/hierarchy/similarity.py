"""The similarity graph of one layer, and that of synonyms: the k nearest neighbours with a cosine of at least τ (GraphMPA §3.1, Eq. 1 and 3).

Up to FLAT_LIMIT nodes the graph is exact and depends only on the vectors, bit for bit: every cosine that decides an edge is computed pair by
pair. So after an edit, only added nodes, and nodes that had k neighbours and lost one, need a neighbour search. Above that limit,
candidates come from a faiss inverted file (at the end of this module), some neighbours are missed, and edges of remaining nodes are
reused: the graph depends on its history until it is rebuilt.
Legend: N nodes, T nodes of a known graph, D dimensions, K candidates of each node, R rows to search for, B rows of a batch, O other nodes, X pairs."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graph.store.ann import LISTS_PER_ROOT, TRAINING_ROUNDS, train_lists, training_rows
from graph.store.columns.blocks import Entries
from graph.store.columns.moved import Block, assembled, moved_block, take_rows
from graph.store.columns.row_map import NO_ROWS, RowMap
from graph.store.vectors import Matrix, Vectors
from graph.types import Floats, Ints

FLAT_LIMIT = 20_000
SPARE_CANDIDATES = 8
"""The number of candidates beyond k, so that nodes with cosines nearly equal to the k-th are included."""
MAX_COSINE_ERROR = 1e-5
"""Upper bound on the error of a cosine from a matrix product."""
BATCH_ROWS, BATCH_PAIRS = 64, 8_192


@dataclass(frozen=True)
class KnownGraph:
    """A similarity graph of T nodes, built with the same k and τ: the part of the block `edges` that starts at node `first`.

    `merge` maps its nodes to the current ones.
    """

    edges: Block
    merge: RowMap
    first: int = 0

    def rows(self, nodes_T: Ints) -> sp.csr_array:
        """The edges of some of its nodes: CSR[·, T]."""
        rows = take_rows(self.edges, nodes_T + self.first)
        shape = len(nodes_T), self.merge.previous_count
        return sp.csr_array((rows.data, rows.indices - self.first, rows.indptr), shape=shape)

    def neighbours(self, nodes_T: Ints) -> Ints:
        """The remaining nodes that have an edge to one of these, ascending."""
        near = np.unique(self.rows(nodes_T).indices).astype(np.int64)
        return near[self.merge.current_rows(near) >= 0]

    def after(self, edit: "GraphEdit") -> sp.csr_array:
        """The full graph after an edit."""
        all_rows = self.rows(np.arange(self.merge.previous_count))
        moved = moved_block(all_rows, self.merge, self.merge, edit.added, edit.replaced_R, both_ways=True)
        return sp.csr_array(assembled(moved))


@dataclass(frozen=True)
class GraphEdit:
    """An edit that gives a graph of `nodes` nodes: `added` are all edges, in both directions, of the nodes in `replaced_R` (ascending, including new nodes)."""

    nodes: int
    replaced_R: Ints
    added: Entries


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

    def moved(self, merge: RowMap) -> "_Pairs":
        """The pairs in current numbers, without deleted nodes."""
        moved = _Pairs(merge.current_rows(self.row_X), merge.current_rows(self.other_X), self.cosine_X)
        return moved.only((moved.row_X >= 0) & (moved.other_X >= 0))

    def reversed(self) -> "_Pairs":
        return _Pairs(self.other_X, self.row_X, self.cosine_X)


_Admit = Callable[[Ints, Floats], NDArray[np.bool_]]
_LARGEST = np.uint32(0xFFFFFFFF)
_NO_PAIRS = _Pairs(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))


def similarity_graph(vectors_ND: Matrix, neighbours: int, min_similarity: float) -> sp.csr_array:
    """Symmetric float32 CSR[N, N] of cosines: an edge where one node is among the other's k nearest and their cosine is ≥ τ and > 0.

    `vectors_ND` are unit rows. No node is its own neighbour, however many duplicates it has; each edge is stored once per
    direction, with the same weight; ties go to the first nodes.
    """
    count = len(vectors_ND)
    if count < 2:
        return sp.csr_array((count, count), dtype=np.float32)
    found = _nearest_of_all(vectors_ND, neighbours, min_similarity)
    edges = sp.coo_array((found.cosine_X, (found.row_X, found.other_X)), shape=(count, count)).tocsr()
    return sp.csr_array(edges.maximum(edges.T))


def _nearest_of_all(vectors_ND: Matrix, neighbours: int, min_similarity: float) -> _Pairs:
    """Every node with its nearest neighbours: exact up to FLAT_LIMIT nodes; beyond that, chosen from `likely_neighbours`."""
    if len(vectors_ND) <= FLAT_LIMIT:
        return _exact_nearest(vectors_ND, neighbours, min_similarity)
    likely = likely_neighbours(vectors_ND, 2 * neighbours + SPARE_CANDIDATES, min_similarity)
    batches = (_measure(vectors_ND, row_X, other_X, min_similarity) for row_X, other_X in likely)
    found = _Pairs.join([_k_nearest(pairs, neighbours) for pairs in batches])
    if isinstance(vectors_ND, Vectors):
        vectors_ND.release_memory()
    return found


def _exact_nearest(vectors_ND: Matrix, neighbours: int, min_similarity: float) -> _Pairs:
    """Every node with its nearest neighbours, without copying vectors that are in one segment."""
    import faiss

    vectors_ND, count = np.ascontiguousarray(vectors_ND, np.float32), len(vectors_ND)
    candidates = min(count, neighbours + 1 + SPARE_CANDIDATES)
    cosines_NK, found_NK = faiss.knn(vectors_ND, vectors_ND, candidates, metric=faiss.METRIC_INNER_PRODUCT)
    rows_NK = np.broadcast_to(np.arange(count)[:, None], found_NK.shape)
    likely_NK = (found_NK != rows_NK) & (cosines_NK >= min_similarity - MAX_COSINE_ERROR)
    pairs = _measure(vectors_ND, rows_NK[likely_NK], found_NK[likely_NK], min_similarity)
    found = _k_nearest(pairs, neighbours)
    if candidates == count:
        return found
    last_N = _last_cosines(found, count, neighbours, min_similarity)
    unsure = np.flatnonzero(cosines_NK[:, -1] >= last_N - MAX_COSINE_ERROR)
    return _k_nearest(_Pairs.join([pairs, *_near_pairs(vectors_ND, unsure, neighbours, min_similarity)]), neighbours)


def edit_graph(vectors_ND: Matrix, neighbours: int, min_similarity: float, known: KnownGraph) -> GraphEdit | None:
    """The edit from a known graph to that of the current vectors; None for fewer than 2 nodes, or if more than a quarter need a neighbour search."""
    count, searched = len(vectors_ND), known.merge.inserted_K
    exact = count <= FLAT_LIMIT
    if exact:
        searched = np.union1d(searched, _short_of_neighbours(known, neighbours))
    if count < 2 or 4 * len(searched) > count:
        return None
    if not exact:
        likely = _likely_near(vectors_ND, searched, neighbours, min_similarity)
        return _graph_edit(count, searched, _k_nearest(likely, neighbours))
    admit = partial(_may_be_nearest, known, searched, neighbours, min_similarity)
    near = _Pairs.join([_NO_PAIRS, *_near_pairs(vectors_ND, searched, neighbours, min_similarity, admit)])
    return _graph_edit(count, *_exact_edges(known, searched, near, neighbours))


def _likely_near(vectors_ND: Matrix, rows_R: Ints, neighbours: int, min_similarity: float) -> _Pairs:
    """Each of these rows with its likely nearest nodes, from the ANN indexes of the vectors if they have any."""
    candidates = vectors_ND.candidates(vectors_ND[rows_R], neighbours + 1) if isinstance(vectors_ND, Vectors) else None
    if candidates is None:
        return _Pairs.join([_NO_PAIRS, *_near_pairs(vectors_ND, rows_R, neighbours, min_similarity)])
    row_X, other_X = np.repeat(rows_R, [len(each) for each in candidates]), np.concatenate([NO_ROWS, *candidates])
    others = row_X != other_X
    return _measure(vectors_ND, row_X[others], other_X[others], min_similarity)


def _short_of_neighbours(known: KnownGraph, neighbours: int) -> Ints:
    """The nodes that had k nearest neighbours and have lost one."""
    pairs = _known_nearest(known, known.neighbours(known.merge.deleted_G), neighbours)
    full_T = np.bincount(pairs.row_X, minlength=known.merge.previous_count) == neighbours
    gone_X = known.merge.current_rows(pairs.other_X) < 0
    return known.merge.current_rows(pairs.row_X[full_T[pairs.row_X] & gone_X])


def _exact_edges(known: KnownGraph, searched: Ints, near: _Pairs, neighbours: int) -> tuple[Ints, _Pairs]:
    """The nodes whose nearest neighbours have changed (searched nodes, and nodes that got a nearer neighbour), and all edges of these nodes.

    Each edge is given in at least one direction.
    """
    changed = np.union1d(searched, near.row_X)
    gained = known.merge.previous_rows(np.setdiff1d(changed, searched))
    own = _k_nearest(_Pairs.join([near, _known_nearest(known, gained, neighbours).moved(known.merge)]), neighbours)
    changed_T = known.merge.previous_rows(changed)
    others = np.setdiff1d(known.neighbours(changed_T[changed_T >= 0]), changed_T)
    to_changed = _known_nearest(known, others, neighbours).moved(known.merge)
    return changed, _Pairs.join([own, to_changed.only(np.isin(to_changed.other_X, changed))])


def _graph_edit(nodes: int, changed: Ints, edges: _Pairs) -> GraphEdit:
    """The edit that gives the changed nodes exactly these edges, each once per direction."""
    both = _Pairs.join([edges, edges.reversed()])
    once = np.unique(both.row_X * nodes + both.other_X, return_index=True)[1]
    return GraphEdit(nodes, changed, Entries(both.row_X[once], both.other_X[once], both.cosine_X[once]))


def _known_nearest(known: KnownGraph, rows_T: Ints, neighbours: int) -> _Pairs:
    """The k nearest neighbours of some nodes of a graph.

    A node's row also contains the nodes that have it among their k nearest; its k nearest are those with the largest cosines (ties go to the first).
    """
    rows = known.rows(rows_T)
    starts, degree_B = rows.indptr[:-1], np.diff(rows.indptr)
    row_X = np.repeat(np.arange(len(rows_T)), degree_B)
    # Cosines are positive, so they sort like their bits; the upper half of each key is the row.
    ordered_X = np.sort(row_X.astype(np.uint64) << np.uint64(32) | (_LARGEST - rows.data.view(np.uint32)))
    crowded = np.flatnonzero(degree_B > neighbours)
    last_B = np.zeros(len(rows_T), np.float32)
    last_B[crowded] = (_LARGEST - ordered_X[starts[crowded] + neighbours - 1].astype(np.uint32)).view(np.float32)
    last_X = last_B[row_X]
    nearer_X, equal_X = rows.data > last_X, rows.data == last_X
    ties_B = neighbours - np.bincount(row_X[nearer_X], minlength=len(rows_T))
    equals = np.concatenate([[0], np.cumsum(equal_X)])
    rank_X = equals[1:] - equals[starts][row_X]
    pairs = _Pairs(rows_T[row_X], rows.indices.astype(np.int64), rows.data)
    return pairs.only(nearer_X | (equal_X & (rank_X <= ties_B[row_X])))


def _may_be_nearest(
    known: KnownGraph, searched: Ints, neighbours: int, min_similarity: float, other_X: Ints, cosine_X: Floats
) -> NDArray[np.bool_]:
    """For each pair, whether the other node is unsearched and the cosine is high enough for the first to be among its nearest: at least the lowest
    in the other node's row, or τ if that row has fewer than k neighbours.
    """
    others, place_X = np.unique(other_X, return_inverse=True)
    rows = known.rows(np.maximum(known.merge.previous_rows(others), 0))
    degree_O = np.diff(rows.indptr)
    least_O = np.full(len(others), min_similarity)
    some = np.flatnonzero(degree_O)
    if len(some):
        lowest = np.minimum.reduceat(rows.data, rows.indptr[some])
        least_O[some] = np.where(degree_O[some] >= neighbours, lowest, min_similarity)
    least_O[np.isin(others, searched)] = np.inf
    return np.asarray(cosine_X >= least_O[place_X] - MAX_COSINE_ERROR)


def _near_pairs(
    vectors_ND: Matrix, rows_R: Ints, neighbours: int, min_similarity: float, admit: _Admit | None = None
) -> Iterator[_Pairs]:
    """These rows with their k nearest nodes; with `admit`, also the other nodes with these rows, if it accepts the pair, given the other nodes and the
    cosines: up to k from each batch.
    """
    for start in range(0, len(rows_R), BATCH_ROWS):
        rows_B = rows_R[start : start + BATCH_ROWS]
        cosines_BN = np.ascontiguousarray((vectors_ND @ vectors_ND[rows_B].T).T)
        cosines_BN[np.arange(len(rows_B)), rows_B] = -np.inf
        last_B = np.full(len(rows_B), min_similarity)
        if neighbours < len(vectors_ND):
            last_B = np.maximum(last_B, np.partition(cosines_BN, -neighbours, axis=1)[:, -neighbours])
        least_B = last_B if admit is None else np.full(len(rows_B), min_similarity)
        place_X, other_X = np.nonzero(cosines_BN >= least_B[:, None] - MAX_COSINE_ERROR)
        if admit is not None:
            cosine_X = cosines_BN[place_X, other_X]
            likely_X = (cosine_X >= last_B[place_X] - MAX_COSINE_ERROR) | admit(other_X, cosine_X)
            place_X, other_X = place_X[likely_X], other_X[likely_X]
        one_way = _measure(vectors_ND, rows_B[place_X], other_X, min_similarity)
        yield _k_nearest(one_way, neighbours)
        if admit is not None:
            yield _k_nearest(one_way.reversed(), neighbours)


def _last_cosines(found: _Pairs, count: int, neighbours: int, min_similarity: float) -> Floats:
    """The cosine of each node's k-th nearest neighbour; τ if it has fewer than k: float[N]."""
    least_N = np.full(count, np.inf)
    np.minimum.at(least_N, found.row_X, found.cosine_X)
    full_N = np.bincount(found.row_X, minlength=count) >= neighbours
    return np.where(full_N, least_N, min_similarity)


def _measure(vectors_ND: Matrix, row_X: Ints, other_X: Ints, min_similarity: float) -> _Pairs:
    """The sufficiently similar pairs with their cosines, whose bits depend neither on the other pairs nor on the direction of a pair."""
    cosine_X = np.empty(len(row_X), np.float32)
    for start in range(0, len(row_X), BATCH_PAIRS):
        part = slice(start, start + BATCH_PAIRS)
        np.einsum("xd,xd->x", vectors_ND[row_X[part]], vectors_ND[other_X[part]], out=cosine_X[part])
    np.clip(cosine_X, -1, 1, out=cosine_X)
    return _Pairs(row_X, other_X, cosine_X).only((cosine_X >= min_similarity - 1e-6) & (cosine_X > 0))


def _k_nearest(pairs: _Pairs, neighbours: int) -> _Pairs:
    """The k nearest of each row, each once; ties go to the first."""
    order = np.lexsort((pairs.other_X, -pairs.cosine_X, pairs.row_X))
    row_X, other_X = pairs.row_X[order], pairs.other_X[order]
    again = np.flatnonzero((np.diff(row_X) == 0) & (np.diff(other_X) == 0)) + 1
    once = pairs.only(np.delete(order, again))
    rank_X = np.arange(len(once.row_X)) - np.searchsorted(once.row_X, once.row_X)
    return once.only(rank_X < neighbours)


PROBED_LISTS, PROBED_AT_HIGH_COSINE, HIGH_COSINE = 32, 8, 0.8
"""The number of lists probed for a node: PROBED_LISTS, or PROBED_AT_HIGH_COSINE if τ is at least HIGH_COSINE, because neighbours
that similar are in few lists.
The probed lists contain .995 of the edges of 10k propositions and .9999 of those of 22k entities (docs/log.md)."""
MAX_UNDERESTIMATE = 0.2
"""The allowance for the error of a cosine from the codes of the inverted file; one cosine in several thousand is underestimated by more."""
TRAINED_PER_CODE = 64
"""Training vectors for each of the 16 codes that represent two dimensions (or one dimension, if the number of dimensions is odd)."""
SEARCHED_ROWS = 8_192


def likely_neighbours(vectors_ND: Matrix, count: int, min_similarity: float) -> Iterator[tuple[Ints, Ints]]:
    """Pairs (node, other node) in which the other is probably among the `count` nearest with at least `min_similarity`, in batches of nodes, in order."""
    inverted, nodes = _inverted_file(vectors_ND), len(vectors_ND)
    probed = PROBED_AT_HIGH_COSINE if min_similarity >= HIGH_COSINE else PROBED_LISTS
    inverted.nprobe = min(probed, inverted.nlist)
    for start in range(0, nodes, SEARCHED_ROWS):
        rows_B = np.arange(start, min(start + SEARCHED_ROWS, nodes))
        cosines_BK, found_BK = inverted.search(_contiguous(vectors_ND[rows_B]), min(nodes, count + 1))
        rows_BK = np.broadcast_to(rows_B[:, None], found_BK.shape)
        likely_BK = (found_BK >= 0) & (found_BK != rows_BK) & (cosines_BK >= min_similarity - MAX_UNDERESTIMATE)
        yield rows_BK[likely_BK], found_BK[likely_BK]


def _inverted_file(vectors_ND: Matrix) -> Any:
    import faiss

    nodes, dimensions = vectors_ND.shape
    codes = dimensions // 2 if dimensions % 2 == 0 else dimensions
    lists = math.isqrt(LISTS_PER_ROOT**2 * nodes)
    coarse = faiss.IndexFlatIP(dimensions)
    inverted = faiss.IndexIVFPQFastScan(coarse, dimensions, lists, codes, 4, faiss.METRIC_INNER_PRODUCT)
    codebooks = inverted.pq.cp
    codebooks.niter, codebooks.max_points_per_centroid = TRAINING_ROUNDS, TRAINED_PER_CODE
    train_lists(inverted, _contiguous(vectors_ND[training_rows(nodes, lists)]))
    for start in range(0, nodes, SEARCHED_ROWS):
        inverted.add(_contiguous(vectors_ND[start : start + SEARCHED_ROWS]))
    return inverted


def _contiguous(vectors_BD: Floats) -> Floats:
    return np.ascontiguousarray(vectors_BD, np.float32)
