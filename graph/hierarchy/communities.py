"""Communities of a weighted graph by Leiden with modularity (GraphMPA Eq. 4)."""

import random
from dataclasses import dataclass
from threading import Lock
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graph.types import Ints

MAX_ITERATIONS = 10
"""Graphs of real documents (8k nodes) converge in 3 to 9 iterations; a graph of synthetic documents needs dozens, and after 10 its modularity is 0.4 % below
the final one."""
_GENERATOR_LOCK = Lock()
"""Held while igraph runs, because igraph has one random number generator for the whole process."""


def find_communities(
    graph: sp.csr_array, method: Literal["leidenalg", "igraph"], seed: int, iterations: int = MAX_ITERATIONS
) -> Ints:
    """The community of every node: int64[N], numbered from 0 by each community's smallest node.

    `graph` is symmetric with positive weights; a node without edges is a community of its own. Leiden runs until nothing changes, at
    most `iterations` times; each run starts from the previous partition.
    """
    import igraph

    upper = sp.triu(graph, k=1).tocoo()
    edges = np.ascontiguousarray(np.column_stack(upper.coords), np.int64)
    network = igraph.Graph(n=graph.shape[0], edges=memoryview(edges))  # type: ignore[arg-type]
    weights = upper.data.astype(float)
    if method == "leidenalg":
        membership = _by_leidenalg(network, weights, seed, iterations)
    else:
        with _GENERATOR_LOCK:
            igraph.set_random_number_generator(random.Random(seed))
            membership = _by_igraph(network, weights, iterations)
    return number_by_first(np.asarray(membership, np.int64))


def _by_leidenalg(network: Any, weights: NDArray[np.float64], seed: int, iterations: int) -> list[int]:
    import leidenalg

    partition, optimiser = leidenalg.ModularityVertexPartition(network, weights=weights), leidenalg.Optimiser()
    optimiser.set_rng_seed(seed)
    for _ in range(iterations):
        if optimiser.optimise_partition(partition, n_iterations=1) <= 0:
            break
    return list(partition.membership)


def _by_igraph(network: Any, weights: NDArray[np.float64], iterations: int) -> list[int]:
    membership: list[int] | None = None
    for _ in range(iterations):
        previous = membership
        options = {"weights": weights, "n_iterations": 1, "initial_membership": previous}
        membership = network.community_leiden("modularity", **options).membership
        if membership == previous:
            break
    return membership or []


def carry_communities(graph: sp.csr_array, known_N: Ints) -> Ints:
    """The communities of a graph with new nodes, without detecting them again: int64[N], numbered as in `find_communities`.

    Known nodes keep their communities. New nodes (−1) are assigned in order, each to the community with the largest sum of edge weights
    (of several equal sums, the lowest-numbered community), or to a new community if it has no edge to any.
    """
    community_N = known_N.copy()
    for node in np.flatnonzero(known_N < 0).tolist():
        entries = slice(*graph.indptr[node : node + 2])
        near, weights = community_N[graph.indices[entries]], graph.data[entries]
        choices, choice = np.unique(near[near >= 0], return_inverse=True)
        strength = np.bincount(choice, weights[near >= 0], len(choices))
        community_N[node] = choices[strength.argmax()] if len(choices) else community_N.max() + 1
    return number_by_first(community_N)


@dataclass(frozen=True)
class NestedCommunities:
    """Communities within communities. `members[c]` are rows of the graph, ascending; `parents[c]` is the index of the enclosing community, or −1."""

    members: tuple[Ints, ...]
    parents: Ints


def nested_communities(graph: sp.csr_array, top_N: Ints, around: Ints, smallest: int, seed: int) -> NestedCommunities:
    """The communities of `top_N` that contain a node of `around`, split recursively by Leiden.

    At every level, communities without a node of `around` are left out; one with fewer than 2 × `smallest` nodes is not split. A parent comes before its
    children; the same graph and seed give the same communities.
    """
    members: list[Ints] = []
    parents: list[int] = []
    waiting = [(np.arange(graph.shape[0]), top_N, -1)]
    while waiting:
        rows, community_n, parent = waiting.pop()
        for group in groups_of(community_n):
            part = rows[group]
            if not np.isin(around, part, assume_unique=True).any():
                continue
            members.append(part)
            parents.append(parent)
            if len(part) >= 2 * smallest:
                inner_n = find_communities(sp.csr_array(graph[part, :][:, part]), "igraph", seed)
                if inner_n.any():
                    waiting.append((part, inner_n, len(members) - 1))
    return NestedCommunities(tuple(members), np.array(parents, np.int64))


def groups_of(membership_N: Ints) -> list[Ints]:
    """The nodes of each community, ascending.

    >>> [group.tolist() for group in groups_of(np.array([1, 0, 1]))]
    [[1], [0, 2]]
    """
    order = np.argsort(membership_N, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(membership_N[order])) + 1)


def number_by_first(membership_N: Ints) -> Ints:
    """Renumber communities 0, 1, … in order of their smallest node.

    >>> number_by_first(np.array([7, 7, 2, 7])).tolist()
    [0, 0, 1, 0]
    """
    _, first, inverse = np.unique(membership_N, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]
