"""Communities of a weighted graph by Leiden with modularity (GraphMPA Eq. 4)."""

import random
from typing import Literal

import igraph
import numpy as np
import scipy.sparse as sp

from graph.types import Ints


def find_communities(graph: sp.csr_array, method: Literal["leidenalg", "igraph"], seed: int) -> Ints:
    """The community of every node: int64[N], numbered from 0 by each community's smallest node.

    `graph` is symmetric with positive weights; a node without edges is a community of its own.
    """
    upper = sp.triu(graph, k=1).tocoo()
    network = igraph.Graph(n=graph.shape[0], edges=np.column_stack(upper.coords).tolist())
    weights = upper.data.astype(float).tolist()
    if method == "leidenalg":
        import leidenalg

        found = leidenalg.find_partition(
            network, leidenalg.ModularityVertexPartition, weights=weights, seed=seed, n_iterations=-1
        )
    else:
        igraph.set_random_number_generator(random.Random(seed))
        found = network.community_leiden("modularity", weights=weights, n_iterations=-1)
    return number_by_first(np.asarray(found.membership, np.int64))


def modularity(graph: sp.csr_array, membership_N: Ints) -> float:
    """Newman's weighted modularity: share of weight within communities, less what their degrees alone would give."""
    total = graph.sum()
    edges = graph.tocoo()
    inside = edges.data[membership_N[edges.coords[0]] == membership_N[edges.coords[1]]].sum()
    degree_C = np.bincount(membership_N, weights=np.asarray(graph.sum(axis=1)).ravel())
    return float(inside / total - np.square(degree_C / total).sum())


def number_by_first(membership_N: Ints) -> Ints:
    """Renumber communities 0, 1, … in order of their smallest node.

    >>> number_by_first(np.array([7, 7, 2, 7])).tolist()
    [0, 0, 1, 0]
    """
    _, first, inverse = np.unique(membership_N, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]
