"""The time of random walks: modegraph's personalised PageRank against igraph's on a large graph, one query-aware walk on a small graph, and 64 walks in a
batch against one walk at a time.

Run: python -P benchmarks/walk.py [--runs 7] [--json]
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import igraph
import numpy as np
import scipy.sparse as sp

from benchmarks.report import Check, median_seconds, new_parser, paired_seconds, print_report
from graph.random_walk import (
    attraction,
    bipartite_transition,
    make_chain,
    personalised_pagerank,
    query_aware_transition,
    restart_at,
    row_normalised,
    structural_transition,
)

VERTICES, EDGES, DAMPING = 200_000, 1_000_000, 0.85


def large_graph(seed: int) -> sp.csr_array:
    """A symmetric graph with degrees like those of entities: a few hubs, and many vertices with few edges."""
    rng = np.random.default_rng(seed)
    ends = (rng.random((EDGES, 2)) ** 2.0 * VERTICES).astype(np.int64)
    shuffle = rng.permutation(VERTICES)
    ends = shuffle[ends[ends[:, 0] != ends[:, 1]]]
    ring = np.column_stack([np.arange(VERTICES), np.roll(np.arange(VERTICES), 1)])
    both = np.concatenate([ends, ends[:, ::-1], ring, ring[:, ::-1]])
    graph = sp.csr_array(sp.coo_array((np.ones(len(both), np.float32), both.T), shape=(VERTICES, VERTICES)))
    graph.data[:] = 1
    return graph


def subgraph(seed: int) -> sp.csr_array:
    """A bipartite graph of 500 propositions with at most five edges each, such as those to four entities and one passage."""
    rng = np.random.default_rng(seed)
    rows = np.repeat(np.arange(500), 5)
    hubs = (rng.random(len(rows)) ** 2 * 700).astype(np.int64)
    return sp.csr_array(sp.coo_array((np.ones(len(rows), np.float32), (rows, hubs)), shape=(500, 700)))


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--runs", type=int, default=7)
    arguments = parser.parse_args()

    graph = large_graph(0)
    chain = make_chain(row_normalised(graph))
    upper = sp.triu(graph, k=1).tocoo()
    network = igraph.Graph(n=VERTICES, edges=np.column_stack(upper.coords))
    seeds = np.array([11, 5_000, 77_777])
    restart = restart_at(seeds, VERTICES)

    def modegraph_scores() -> np.ndarray:
        return personalised_pagerank(chain, restart, DAMPING)[:, 0]

    def igraph_scores() -> np.ndarray:
        return np.array(
            network.personalized_pagerank(reset_vertices=seeds.tolist(), damping=DAMPING, implementation="prpack")
        )

    shared = len(set(np.argsort(-modegraph_scores())[:100]) & set(np.argsort(-igraph_scores())[:100]))
    our_seconds, their_seconds = paired_seconds(modegraph_scores, igraph_scores, arguments.runs)

    incidence, cosines = subgraph(1), np.random.default_rng(2).random(500).astype(np.float32)

    def query_walk() -> np.ndarray:
        attracted = attraction(cosines, 0.1, 0.4)
        return personalised_pagerank(
            query_aware_transition(structural_transition(incidence), attracted, 0.5),
            restart_at(np.array([1, 2, 3]), 500),
            DAMPING,
        )

    query_seconds = median_seconds(query_walk, 5 * arguments.runs)

    walk = make_chain(bipartite_transition(sp.csr_array(sp.block_diag([subgraph(n) for n in range(40)]))))
    batch = np.hstack([restart_at(np.array([17 * n]), len(walk.missing_V)) for n in range(64)])

    def walk_in_a_batch() -> None:
        personalised_pagerank(walk, batch, DAMPING)

    def walk_one_by_one() -> None:
        for column in range(64):
            personalised_pagerank(walk, batch[:, [column]], DAMPING)

    batch_seconds, single_seconds = paired_seconds(walk_in_a_batch, walk_one_by_one, max(3, arguments.runs // 2))
    figures = {
        "vertices": VERTICES,
        "edges": upper.nnz,
        "ours_ms": our_seconds * 1e3,
        "igraph_prpack_ms": their_seconds * 1e3,
        "query_walk_ms": query_seconds * 1e3,
        "batch_64_ms": batch_seconds * 1e3,
        "single_64_ms": single_seconds * 1e3,
    }
    checks = [
        Check("speed, as a multiple of igraph prpack's", their_seconds / our_seconds, 4, True),
        Check("vertices in the top 100 of both", shared, 100, True),
        Check("query-aware walk on 500 propositions (ms)", query_seconds * 1e3, 5, False),
        Check(
            "speed of 64 walks in a batch, as a multiple of that of one walk at a time",
            single_seconds / batch_seconds,
            4,
            True,
        ),
    ]
    return print_report("walk", figures, checks, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
