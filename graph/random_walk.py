"""Random walks over the proposition–entity–passage graph (ToPG §2.2, Eq. 3–8). Pure functions; nothing is sampled.

Legend: N propositions (of the graph or of a subgraph), B hubs (entities and passages), V vertices of any graph, Q queries.
A transition matrix T has T[i, j] = probability of stepping from i to j; its rows sum to at most 1: missing mass (of a vertex without
neighbours, or without a neighbour of positive attraction) returns to the restart distribution, so that walks stay stochastic.
"""

import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from graph.types import Floats, Ints

TOLERANCE = 5e-6
"""The largest L1 distance of a result from its stationary distribution. Float32 rounding adds at most 3e-7 ÷ (1 − damping)."""
MAX_DAMPING = 0.99
"""The largest `damping` that settings accept; walks then need at most 1,745 steps, and their rounding error is at most 3e-5."""
ROUNDING_ERROR = 1e-6
"""Missing mass below this counts as a rounding error."""
STEPS_BETWEEN_CHECKS = 5
COLUMNS_PER_BLOCK = 32


def row_normalised(block: sp.csr_array) -> sp.csr_array:
    """Rows scaled to sum to 1; rows of zeros stay zero. Entries must not be negative; the sparsity pattern does not change."""
    sums = np.asarray(block.sum(axis=1)).ravel()
    scale = np.divide(1, sums, out=np.zeros(len(sums)), where=sums > 0)
    scaled = (block.data * np.repeat(scale, np.diff(block.indptr))).astype(np.float32)
    return sp.csr_array((scaled, block.indices, block.indptr), shape=block.shape)


def bipartite_transition(incidence_NB: sp.csr_array) -> sp.csr_array:
    """The transition matrix between propositions and their hubs: CSR[N + B, N + B], propositions first."""
    forth, back = row_normalised(incidence_NB), row_normalised(sp.csr_array(incidence_NB.T))
    return sp.block_array([[None, forth], [back, None]], format="csr")


def structural_transition(incidence_NB: sp.csr_array) -> sp.csr_array:
    """T_s (Eq. 5): proposition → hub → another proposition; CSR[N, N], for subgraphs.

    The diagonal is removed and rows are normalised again; a proposition that shares no hub has a row of zeros.
    """
    product = row_normalised(incidence_NB) @ row_normalised(sp.csr_array(incidence_NB.T))
    product.data[product.indices == np.repeat(np.arange(product.shape[0]), np.diff(product.indptr))] = 0
    product.eliminate_zeros()
    return row_normalised(product)


def attraction(cosines_N: Floats, temperature: float, threshold: float) -> Floats:
    """c̃ (Eq. 6) of one query [N] or of many [N, Q]: exp(c/τ) where c ≥ θ, else exactly 0.

    The values are divided by each query's largest one, a factor that cancels in Eq. 7.
    """
    above_N = cosines_N >= threshold
    highest = cosines_N.max(axis=0, initial=0.0, where=above_N)
    return np.where(above_N, np.exp((cosines_N - highest) / temperature), 0).astype(np.float32)


def semantic_transition(structural_NN: sp.csr_array, attraction_N: Floats) -> sp.csr_array:
    """T_n (Eq. 7): the same neighbours as T_s, each weighted by its attraction; a row without a neighbour of positive attraction is all zeros."""
    weights = attraction_N[structural_NN.indices]
    return row_normalised(sp.csr_array((weights, structural_NN.indices, structural_NN.indptr), structural_NN.shape))


def query_aware_transition(structural_NN: sp.csr_array, attraction_N: Floats, structure_weight: float) -> sp.csr_array:
    """M = λ T_s + (1 − λ) T_n (Eq. 4); at λ = 1 the query has no influence."""
    semantic_NN = semantic_transition(structural_NN, attraction_N)
    mixed = structure_weight * structural_NN.data + (1 - structure_weight) * semantic_NN.data
    return sp.csr_array((mixed, structural_NN.indices, structural_NN.indptr), structural_NN.shape)


def query_aware_walks(
    structural_NN: sp.csr_array,
    attraction_NQ: Floats,
    restart_NQ: Floats,
    structure_weight: float,
    damping: float,
) -> Floats:
    """Walks of many queries over one structure, each attracted by its column of `attraction_NQ`: float32[N, Q], columns sum to 1.

    Column q equals `personalised_pagerank(query_aware_transition(structural_NN, attraction_NQ[:, q], λ), restart_NQ[:, [q]])`, but
    no query's matrix is formed: with P the pattern of T_s, T_nᵀ x = c̃ ∘ Pᵀ(x / P c̃), so that a step costs two products for all queries.
    """
    _check_damping(damping)
    ones = np.ones_like(structural_NN.data)
    pattern_NN = sp.csr_array((ones, structural_NN.indices, structural_NN.indptr), structural_NN.shape)
    pull_NN, back_NN = sp.csr_array(structural_NN.T), sp.csr_array(pattern_NN.T)
    reached_NQ = pattern_NN @ attraction_NQ
    share_NQ = np.divide(1, reached_NQ, out=np.zeros_like(reached_NQ), where=reached_NQ > 0)
    restart_NQ = (restart_NQ / restart_NQ.sum(axis=0)).astype(np.float32)
    mass_NQ = restart_NQ
    for _ in range(max_steps(damping, TOLERANCE)):
        stepped_NQ = structure_weight * (pull_NN @ mass_NQ)
        stepped_NQ += (1 - structure_weight) * attraction_NQ * (back_NN @ (mass_NQ * share_NQ))
        stepped_NQ *= damping
        stepped_NQ += (1 - stepped_NQ.sum(axis=0)) * restart_NQ
        settled = np.abs(stepped_NQ - mass_NQ).sum(axis=0).max(initial=0) < last_change(damping, TOLERANCE)
        mass_NQ = stepped_NQ
        if settled:
            break
    return np.asarray(mass_NQ, np.float32)


@dataclass(frozen=True)
class Chain:
    """A prepared walk: `pull_VV` = Tᵀ, whose row j sums the mass arriving at j, and `missing_V`, 1 minus the row sums of T."""

    pull_VV: sp.csr_array
    missing_V: Floats


def make_chain(transition_VV: sp.csr_array | Floats) -> Chain:
    """The chain of a transition matrix; reuse it for many walks on one graph."""
    pull_VV = sp.csr_array(transition_VV.T, dtype=np.float32)
    if pull_VV.nnz < np.iinfo(np.int32).max:
        indices, indptr = pull_VV.indices.astype(np.int32), pull_VV.indptr.astype(np.int32)
        pull_VV = sp.csr_array((pull_VV.data, indices, indptr), shape=pull_VV.shape)
    return Chain(pull_VV, (1 - np.asarray(transition_VV.sum(axis=1), np.float32)).ravel())


def personalised_pagerank(
    walk: Chain | sp.csr_array | Floats, restart_VQ: Floats, damping: float, tolerance: float = TOLERANCE
) -> Floats:
    """The stationary distribution of each column's walk: float32[V, Q], columns sum to 1.

    `walk` is a chain or its transition matrix; `damping` is the probability of continuing; with probability 1 − damping, the walk restarts
    from its column of `restart_VQ` (≥ 0, not all 0; scaled to sum 1 here). Power iteration runs until every column is
    within `tolerance` (L1) of its stationary distribution, up to float32 rounding (TOLERANCE). Columns are processed in blocks, in
    parallel threads. ValueError for a `damping` outside [0, 1) and for an invalid restart.
    """
    _check_damping(damping)
    if restart_VQ.ndim != 2 or (restart_VQ < 0).any() or (restart_VQ.sum(axis=0) <= 0).any():
        required = "must be [V, Q], not negative, with a positive sum in every column"
        raise ValueError(f"restart of shape {restart_VQ.shape}: {required}")
    chain = walk if isinstance(walk, Chain) else make_chain(walk)
    restart_VQ = (restart_VQ / restart_VQ.sum(axis=0)).astype(np.float32)
    columns = restart_VQ.shape[1]
    if columns == 1:
        return _iterate(chain, restart_VQ[:, 0], damping, tolerance)[:, None]
    blocks = [restart_VQ[:, start : start + COLUMNS_PER_BLOCK] for start in range(0, columns, COLUMNS_PER_BLOCK)]
    with ThreadPoolExecutor(max_workers=min(len(blocks), os.cpu_count() or 1)) as threads:
        return np.hstack(list(threads.map(lambda block: _iterate(chain, block, damping, tolerance), blocks)))


def _iterate(chain: Chain, restart: Floats, damping: float, tolerance: float) -> Floats:
    """Power iteration of one column [V] or of many [V, Q]."""
    leaking = np.flatnonzero(chain.missing_V > ROUNDING_ERROR)
    missing = np.float32(damping) * chain.missing_V[leaking]
    start_rows = np.flatnonzero(restart.reshape(len(restart), -1).any(axis=1))
    start_mass, rate = restart[start_rows], np.float32(damping)
    mass = restart
    threshold = last_change(damping, tolerance)
    for count in range(1, max_steps(damping, tolerance) + 1):
        stepped = chain.pull_VV @ mass
        stepped *= rate
        stepped[start_rows] += (missing @ mass[leaking] + (1 - rate)) * start_mass
        settled = count % STEPS_BETWEEN_CHECKS == 0 and np.abs(stepped - mass).sum(axis=0).max() < threshold
        mass = stepped
        if settled:
            break
    return np.asarray(mass / mass.sum(axis=0), np.float32)


def max_steps(damping: float, tolerance: float) -> int:
    """The number of steps after which the change per step is below `last_change` for any graph: the first change is at most 2, and each step multiplies the
    change by at most `damping`.

    >>> max_steps(0.85, 5e-6), max_steps(0.99, 5e-6), max_steps(0.0, 5e-6)
    (95, 1745, 5)
    """
    steps = math.log(last_change(damping, tolerance) / 2) / math.log(damping) if damping > 0 else 1
    return STEPS_BETWEEN_CHECKS * (1 + max(0, math.floor(steps / STEPS_BETWEEN_CHECKS)))


def last_change(damping: float, tolerance: float) -> float:
    """The change per step below which a walk is within `tolerance`: the remaining change is at most change × (d + d² + …), where d is `damping`."""
    return tolerance * (1 - damping) / damping if damping > 0 else math.inf


def _check_damping(damping: float) -> None:
    if not 0 <= damping < 1:
        raise ValueError(f"damping {damping}: must be at least 0 and below 1")


def restart_at(rows: Ints, vertices: int) -> Floats:
    """A restart column [V, 1] spread evenly over `rows`; ValueError without rows, and for a row that is not a vertex."""
    if len(rows) == 0:
        raise ValueError("no seeds: a walk needs at least one seed")
    if min(rows) < 0 or max(rows) >= vertices:
        valid = f"a graph of {vertices} vertices has rows 0 to {vertices - 1}"
        raise ValueError(f"seeds {min(rows)} to {max(rows)}: {valid}")
    restart_V1 = np.zeros((vertices, 1), np.float32)
    restart_V1[rows, 0] = 1 / len(rows)
    return restart_V1
