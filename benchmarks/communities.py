"""Communities after one inserted document: igraph's Leiden against leidenalg, both clustering the whole graph from scratch.

Clustering the whole graph again makes an edited index equal one built from scratch. Is igraph fast enough for that, and are its
communities as good as leidenalg's? Run: python -P benchmarks/communities.py [--json]
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import scipy.sparse as sp

from benchmarks.report import Check, median_seconds, new_parser, print_report, seconds_of
from graph.hierarchy.communities import find_communities

NODES, EDGES, DOCUMENT_NODES = 180_000, 340_000, 30


def corpus_graph(seed: int) -> sp.csr_array:
    """A random graph of documents with 30 nodes each. An edge stays in its document or leads to a hub: a document's first three nodes are hubs for the
    40 documents of its group.
    """
    rng = np.random.default_rng(seed)
    inner_share = 0.8
    first = rng.integers(0, NODES, EDGES)
    same_document = first // DOCUMENT_NODES * DOCUMENT_NODES + rng.integers(0, DOCUMENT_NODES, EDGES)
    hub = (first // DOCUMENT_NODES // 40 * 40 + rng.integers(0, 40, EDGES)) * DOCUMENT_NODES + rng.integers(0, 3, EDGES)
    second = np.minimum(np.where(rng.random(EDGES) < inner_share, same_document, hub), NODES - 1)
    no_loop = first != second
    weights = rng.uniform(0.5, 1, no_loop.sum()).astype(np.float32)
    half = sp.coo_array((weights, (first[no_loop], second[no_loop])), shape=(NODES, NODES)).tocsr()
    return sp.csr_array(half.maximum(half.T))


def with_document(graph: sp.csr_array, seed: int) -> sp.csr_array:
    """The graph with one more document of 30 nodes, connected to up to 20 nodes of other documents."""
    rng = np.random.default_rng(seed)
    size = NODES + DOCUMENT_NODES
    rows = rng.integers(NODES, size, 80)
    columns = np.where(np.arange(80) < 60, rng.integers(NODES, size, 80), rng.integers(0, NODES, 80))
    no_loop = rows != columns
    extra = sp.coo_array(
        (np.full(no_loop.sum(), 0.7, np.float32), (rows[no_loop], columns[no_loop])), shape=(size, size)
    ).tocsr()
    grown = graph.copy()
    grown.resize((size, size))
    return sp.csr_array(grown.maximum(extra).maximum(extra.T))


def modularity(graph: sp.csr_array, membership_N: np.ndarray) -> float:
    """Newman's weighted modularity: the share of weight within communities, minus the share expected from degrees alone."""
    total = graph.sum()
    edges = graph.tocoo()
    inside = edges.data[membership_N[edges.coords[0]] == membership_N[edges.coords[1]]].sum()
    degree_C = np.bincount(membership_N, weights=np.asarray(graph.sum(axis=1)).ravel())
    return float(inside / total - np.square(degree_C / total).sum())


def main() -> int:
    parser = new_parser(__doc__)
    arguments = parser.parse_args()
    graph = with_document(corpus_graph(0), 1)
    memberships = {}
    seconds = {}
    for method in ("igraph", "leidenalg"):

        def cluster(method: str = method) -> None:
            memberships[method] = find_communities(graph, method, 0)

        if method == "leidenalg":
            seconds[method] = seconds_of(cluster)
        else:
            seconds[method] = median_seconds(cluster, 3)
    quality = {method: modularity(graph, membership) for method, membership in memberships.items()}
    figures = {
        "nodes": graph.shape[0],
        "edges": graph.nnz // 2,
        **{f"{method}_seconds": value for method, value in seconds.items()},
        **{f"{method}_modularity": value for method, value in quality.items()},
        **{f"{method}_communities": int(membership.max()) + 1 for method, membership in memberships.items()},
    }
    checks = [
        Check("faster than leidenalg (×)", seconds["leidenalg"] / seconds["igraph"], 10, True),
        Check("modularity, share of leidenalg's", quality["igraph"] / quality["leidenalg"], 0.995, True),
    ]
    return print_report("communities", figures, checks, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
