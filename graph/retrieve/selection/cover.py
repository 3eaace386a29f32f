"""Greedy choice of communities that cover a question's anchors under a budget (ToPG B.5, Algorithm 3).

The published budget counts nodes; ours counts tokens of what a prompt would show of a community.

Legend: C communities, N propositions.
"""

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from graph.layers.communities import NestedCommunities
from graph.shared.types import Floats, Ints

MIN_NODES, MAX_NODES = 10, 150


def candidates(nested: NestedCommunities, propositions: int) -> tuple[Ints, sp.csr_array]:
    """Communities of 10 to 150 nodes (a smaller one only if it is in no other), and their propositions: CSR[C, N] of ones."""
    sizes = np.array([len(members) for members in nested.members], np.int64)
    fits = (sizes <= MAX_NODES) & ((sizes >= MIN_NODES) | (nested.parents < 0))
    rows = np.flatnonzero(fits)
    inside = [nested.members[row][nested.members[row] < propositions] for row in rows]
    columns = np.concatenate([np.zeros(0, np.int64), *inside])
    indptr = np.concatenate([[0], np.cumsum([len(members) for members in inside])])
    return rows, sp.csr_array((np.ones(len(columns), np.float32), columns, indptr), (len(rows), propositions))


def greedy_cover(
    anchors: Ints,
    nested: NestedCommunities,
    rows_C: Ints,
    proposition_CN: sp.csr_array,
    cost: Callable[[int], int],
    budget: int,
) -> list[int]:
    """Rows of `nested`, in the order chosen: always the most uncovered anchors for its size, ties by row.

    A community that costs more than the room left is skipped, and does not end the choice; one that lies within a chosen
    one, or around it, is never chosen. Ends when all anchors that can be covered are.
    """
    uncovered_N = np.zeros(proposition_CN.shape[1], np.float32)
    uncovered_N[anchors] = 1
    size_C = np.array([len(nested.members[row]) for row in rows_C], np.float32)
    open_C = np.ones(len(rows_C), bool)
    lines_C = [lineage(nested.parents, int(row)) for row in rows_C]
    chosen: list[int] = []
    while open_C.any():
        worth_C: Floats = np.where(open_C, proposition_CN @ uncovered_N / size_C, 0)
        best = int(worth_C.argmax())
        if worth_C[best] <= 0:
            break
        open_C[best] = False
        price = cost(int(rows_C[best]))
        if price > budget:
            continue
        budget -= price
        row = int(rows_C[best])
        chosen.append(row)
        uncovered_N[proposition_CN.indices[proposition_CN.indptr[best] : proposition_CN.indptr[best + 1]]] = 0
        open_C &= np.array(
            [row not in line and int(other) not in lines_C[best] for line, other in zip(lines_C, rows_C, strict=True)]
        )
    return chosen


def lineage(parents: Ints, row: int) -> frozenset[int]:
    """The communities around one, itself included.

    >>> sorted(lineage(np.array([-1, 0, 1, 0]), 2))
    [0, 1, 2]
    """
    above: list[int] = []
    while row >= 0:
        above.append(row)
        row = int(parents[row])
    return frozenset(above)
