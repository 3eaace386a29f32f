"""Random walks over the proposition–name–passage graph (ToPG §2.2, Eq. 3–8). Pure functions; nothing is sampled.

Legend: N propositions (of the graph or of a subgraph), B hubs (names and passages), V vertices of any graph, Q queries.
A transition matrix T has T[i, j] = probability of stepping from i to j; its rows sum to 1, or to less: what is missing (a vertex
without neighbours, or without an attractive one) goes back to the restart distribution, so that walks stay stochastic.
"""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import scipy.sparse as sp

from graph.types import Floats, Ints

TOLERANCE = 1e-6
MAX_STEPS = 200
STEPS_BETWEEN_CHECKS = 5
COLUMNS_AT_ONCE = 32


def row_normalised(block: sp.csr_array) -> sp.csr_array:
    """Rows scaled to sum to 1; rows of zeros stay zero. Entries must not be negative."""
    sums = np.asarray(block.sum(axis=1)).ravel()
    scale = np.divide(1, sums, out=np.zeros_like(sums, np.float32), where=sums > 0)
    return sp.csr_array(sp.diags_array(scale.astype(np.float32)) @ block)


def bipartite_transition(incidence_NB: sp.csr_array) -> sp.csr_array:
    """The walk that steps between propositions and their hubs: CSR[N + B, N + B], propositions first."""
    forth, back = row_normalised(incidence_NB), row_normalised(sp.csr_array(incidence_NB.T))
    return sp.csr_array(sp.block_array([[None, forth], [back, None]], format="csr"))


def structural_transition(incidence_NB: sp.csr_array) -> Floats:
    """T_s (Eq. 5): proposition → hub → another proposition; dense float32[N, N], for subgraphs.

    The diagonal is 0 and rows are normalised again after it is taken out; a proposition that shares no hub has a row of zeros.
    """
    product = row_normalised(incidence_NB) @ row_normalised(sp.csr_array(incidence_NB.T))
    transition_NN = product.toarray().astype(np.float32)
    np.fill_diagonal(transition_NN, 0)
    return _dense_row_normalised(transition_NN)


def apply_structural(incidence_NB: sp.csr_array, mass_NQ: Floats) -> Floats:
    """One step of T_s from `mass_NQ` without ever forming it: the two factors in turn, the diagonal taken out.

    Equal to `structural_transition(incidence_NB).T @ mass_NQ`, at the cost of the incidence's entries.
    """
    forth, back = row_normalised(incidence_NB), row_normalised(sp.csr_array(incidence_NB.T))
    stay_N = np.asarray(forth.multiply(sp.csr_array(back.T)).sum(axis=1), np.float32).ravel()
    leaves_N = 1 - stay_N
    moves_N = leaves_N > TOLERANCE
    scaled_NQ = np.where(moves_N[:, None], mass_NQ / np.where(moves_N, leaves_N, 1)[:, None], 0).astype(np.float32)
    arrived_NQ = back.T @ (forth.T @ scaled_NQ)
    return np.asarray(arrived_NQ - stay_N[:, None] * scaled_NQ, np.float32)


def attraction(cosines_N: Floats, temperature: float, threshold: float) -> Floats:
    """c̃ (Eq. 6): exp(c/τ) where c ≥ θ, else exactly 0. Scaled by its largest value, which Eq. 7 cancels."""
    kept_N = cosines_N >= threshold
    highest = cosines_N.max(initial=0.0, where=kept_N)
    return np.where(kept_N, np.exp((cosines_N - highest) / temperature), 0).astype(np.float32)


def semantic_transition(structural_NN: Floats, attraction_N: Floats) -> Floats:
    """T_n (Eq. 7): the same neighbours as T_s, each weighted by its attraction; a row with no attractive one is zeros."""
    return _dense_row_normalised(np.where(structural_NN > 0, attraction_N[None, :], 0).astype(np.float32))


def query_aware_transition(structural_NN: Floats, attraction_N: Floats, structure_weight: float) -> Floats:
    """M = λ T_s + (1 − λ) T_n (Eq. 4); at λ = 1 the query has no say."""
    return structure_weight * structural_NN + (1 - structure_weight) * semantic_transition(structural_NN, attraction_N)


def personalised_pagerank(
    transition: sp.csr_array | Floats, restart_VQ: Floats, damping: float, tolerance: float = TOLERANCE
) -> Floats:
    """The stationary distribution of each column's walk: float32[V, Q], columns sum to 1.

    `damping` is the probability of walking on; with 1 − damping the walk starts again from its column of `restart_VQ` (≥ 0,
    not all 0; scaled to sum 1 here). Power iteration until no column changes by more than `tolerance` in sum. Many columns are
    walked together, in blocks that share out the processor's cores.
    """
    if restart_VQ.ndim != 2 or (restart_VQ < 0).any() or (restart_VQ.sum(axis=0) <= 0).any():
        raise ValueError("restart must be [V, Q], not negative, with some mass in every column")
    restart_VQ = (restart_VQ / restart_VQ.sum(axis=0)).astype(np.float32)
    step = transition.T * np.float32(damping)
    pull = sp.csr_array(step) if sp.issparse(step) else np.ascontiguousarray(step)
    missing_V = (1 - np.asarray(transition.sum(axis=1), np.float32)).ravel()
    columns = restart_VQ.shape[1]
    if columns == 1:
        return _iterate(pull, missing_V, restart_VQ[:, 0], damping, tolerance)[:, None]
    blocks = [restart_VQ[:, start : start + COLUMNS_AT_ONCE] for start in range(0, columns, COLUMNS_AT_ONCE)]
    with ThreadPoolExecutor(max_workers=min(len(blocks), os.cpu_count() or 1)) as threads:
        return np.hstack(list(threads.map(lambda block: _iterate(pull, missing_V, block, damping, tolerance), blocks)))


def _iterate(
    pull: sp.csr_array | Floats, missing_V: Floats, restart: Floats, damping: float, tolerance: float
) -> Floats:
    """Power iteration of one column [V] or of many [V, Q]; `pull` is the transposed transition times the damping."""
    leaking, starting = (
        np.flatnonzero(missing_V > TOLERANCE),
        np.flatnonzero(restart.reshape(len(restart), -1).any(axis=1)),
    )
    starts = restart[starting]
    mass = restart
    for count in range(1, MAX_STEPS + 1):
        lost = missing_V[leaking] @ mass[leaking]
        stepped = pull @ mass
        stepped[starting] += (damping * lost + 1 - damping) * starts
        settled = count % STEPS_BETWEEN_CHECKS == 0 and np.abs(stepped - mass).sum(axis=0).max() < tolerance
        mass = stepped
        if settled:
            break
    return np.asarray(mass / mass.sum(axis=0), np.float32)


def restart_at(rows: Ints, vertices: int) -> Floats:
    """A restart column [V, 1] spread evenly over `rows`; UserError is the caller's: no rows is a ValueError."""
    if len(rows) == 0:
        raise ValueError("a walk needs at least one seed")
    restart_V1 = np.zeros((vertices, 1), np.float32)
    restart_V1[rows, 0] = 1 / len(rows)
    return restart_V1


def _dense_row_normalised(matrix_NN: Floats) -> Floats:
    sums_N1 = matrix_NN.sum(axis=1, keepdims=True)
    normalised_NN: Floats = np.divide(matrix_NN, sums_N1, out=np.zeros_like(matrix_NN), where=sums_N1 > 0)
    return normalised_NN
