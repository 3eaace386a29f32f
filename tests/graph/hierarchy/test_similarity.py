"""The similarity graph, its communities and extractive summaries, compared with slow reference implementations and closed forms."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given
from hypothesis import strategies as st

from benchmarks.communities import modularity
from graph.hierarchy import similarity
from graph.hierarchy.communities import carry_communities, find_communities
from graph.hierarchy.similarity import KnownGraph, edit_graph, similarity_graph
from graph.hierarchy.summaries import choose_sentences
from graph.models.encoder import unit_rows
from graph.store.columns.blocks import narrow
from graph.store.columns.row_map import RowMap
from graph.store.vectors import Vectors


def vectors(count: int, seed: int) -> np.ndarray:
    return unit_rows(np.random.default_rng(seed).normal(size=(count, 8)).astype(np.float32))


@given(st.integers(2, 40), st.integers(0, 10_000), st.integers(1, 6), st.sampled_from([0.0, 0.3]))
def test_graph_equals_a_slow_reference(count: int, seed: int, neighbours: int, min_similarity: float) -> None:
    vectors_ND = vectors(count, seed)
    cosines_NN = vectors_ND @ vectors_ND.T
    assume(min_similarity == 0 or np.abs(cosines_NN - min_similarity).min() > 1e-5)
    expected = np.zeros_like(cosines_NN)
    for i in range(count):
        others = sorted((j for j in range(count) if j != i), key=lambda j: -cosines_NN[i, j])[:neighbours]
        for j in others:
            if cosines_NN[i, j] >= min_similarity and cosines_NN[i, j] > 0:
                expected[i, j] = expected[j, i] = cosines_NN[i, j]
    assert np.abs(similarity_graph(vectors_ND, neighbours, min_similarity).toarray() - expected).max() < 1e-5


def test_identical_texts_are_neighbours_at_cosine_one_and_no_text_is_its_own_neighbour() -> None:
    vectors_ND = np.repeat(vectors(1, 0), 5, axis=0)
    graph = similarity_graph(vectors_ND, 2, 0.9)
    assert graph.diagonal().max() == 0 and graph.data.min() > 0.9999
    assert all(graph[[i], :].nnz >= 2 for i in range(5))
    exact = np.tile(np.array([[0.6, 0.8]], np.float32), (3, 1))
    assert similarity_graph(exact, 5, 1.0).nnz == 6


def test_fewer_than_two_nodes_have_no_edges() -> None:
    assert similarity_graph(vectors(1, 0), 10, 0.5).shape == (1, 1)
    assert similarity_graph(vectors(0, 0), 10, 0.5).nnz == 0


@pytest.mark.parametrize("method", ["leidenalg", "igraph"])
def test_two_cliques_and_an_isolated_node_are_three_communities(method: str) -> None:
    clique = np.ones((4, 4)) - np.eye(4)
    graph = sp.csr_array(sp.block_diag([clique, clique, np.zeros((1, 1))]).astype(np.float32))
    bridged = graph.tolil()
    bridged[3, 4] = bridged[4, 3] = 0.1
    found = find_communities(sp.csr_array(bridged), method, seed=1)
    assert found.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2]
    assert np.array_equal(found, find_communities(sp.csr_array(bridged), method, seed=1))


@pytest.mark.long
@pytest.mark.parametrize("method", ["leidenalg", "igraph"])
def test_each_iteration_continues_the_previous_one_until_convergence_or_the_limit(method: str) -> None:
    graph = similarity_graph(vectors(600, 5), 6, 0.0)
    by_count = [find_communities(graph, method, 3, iterations) for iterations in (1, 2, 10, 200, 400)]
    quality = [modularity(graph, found) for found in by_count]
    assert quality[0] < quality[1] <= quality[2] <= quality[3] and quality[2] > 0.99 * quality[3]
    assert np.array_equal(by_count[3], by_count[4]), "the search should converge before the limit"
    assert np.array_equal(by_count[2], find_communities(graph, method, 3))


def test_edge_weights_decide_between_communities_with_equal_edge_counts() -> None:
    square = np.array([[0, 5, 0, 1], [5, 0, 1, 0], [0, 1, 0, 5], [1, 0, 5, 0]], np.float32)
    assert find_communities(sp.csr_array(square), "leidenalg", 0).tolist() == [0, 0, 1, 1]


def test_a_summary_prefers_central_sentences_avoids_repeats_and_fits_its_token_limit() -> None:
    vectors_SD = unit_rows(np.array([[1, 0.1, 0], [1, 0.1, 0], [1, -0.3, 0.2], [0, 0, -1]], np.float32))
    assert choose_sentences(vectors_SD, lambda row: 10, 20) == [0, 2]


def test_a_summary_contains_a_sentence_even_if_none_fits() -> None:
    vectors_SD = unit_rows(np.array([[1, 0, 0], [0.9, 0.4, 0], [0.8, 0, 0.6]], np.float32))
    assert len(choose_sentences(vectors_SD, lambda row: 99, 10)) == 1


def test_the_modularity_of_two_joined_triangles_equals_a_calculation_by_hand() -> None:
    graph = np.zeros((6, 6), np.float32)
    for a, b in [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5), (2, 3)]:
        graph[a, b] = graph[b, a] = 1
    assert modularity(sp.csr_array(graph), np.array([0, 0, 0, 1, 1, 1])) == pytest.approx(12 / 14 - 2 * (7 / 14) ** 2)


def updated_graph(vectors_ND: np.ndarray, neighbours: int, min_similarity: float, known: KnownGraph) -> sp.csr_array:
    """The similarity graph of vectors, some of which the known graph already contains."""
    edit = edit_graph(vectors_ND, neighbours, min_similarity, known)
    return similarity_graph(vectors_ND, neighbours, min_similarity) if edit is None else known.after(edit)


def same_bytes(a: sp.csr_array, b: sp.csr_array) -> bool:
    parts = ((graph.data.tobytes(), graph.indices.tobytes(), graph.indptr.tobytes()) for graph in map(narrow, (a, b)))
    return next(parts) == next(parts)


@given(st.data(), st.integers(0, 10_000), st.integers(1, 5), st.sampled_from([-1.0, 0.3, 0.7]))
def test_a_graph_that_lost_and_gained_nodes_equals_one_built_from_scratch(
    data: st.DataObject, seed: int, neighbours: int, min_similarity: float
) -> None:
    """Nodes are sampled from 40 vectors, so that some are identical; a few are removed and a few added, at any position."""
    pool_ND = vectors(40, seed)
    sampled_nodes = data.draw(
        st.lists(st.tuples(st.integers(0, 39), st.sampled_from("kkkkkkkkkkkkkkkk-+")), min_size=2, max_size=60)
    )
    before = [row for row, action in sampled_nodes if action != "+"]
    now = [(row, action) for row, action in sampled_nodes if action != "-"]
    last_N, last = [], 0
    for _, action in sampled_nodes:
        last_N += {"k": [last], "-": [], "+": [-1]}[action]
        last += action != "+"
    first = similarity_graph(pool_ND[before], neighbours, min_similarity)
    known = KnownGraph(first, RowMap.of_previous(np.array(last_N, np.int64), len(before)))
    changed = updated_graph(pool_ND[[row for row, _ in now]], neighbours, min_similarity, known)
    assert same_bytes(changed, similarity_graph(pool_ND[[row for row, _ in now]], neighbours, min_similarity))


def test_only_new_nodes_and_nodes_that_lost_a_neighbour_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors_ND = vectors(300, 7)
    first = similarity_graph(vectors_ND[1:], 4, 0.0)
    searched: list[int] = []
    near = similarity._near_pairs

    def record_rows(vectors_ND: np.ndarray, rows_R: np.ndarray, *arguments: object) -> object:
        searched.extend(rows_R.tolist())
        return near(vectors_ND, rows_R, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(similarity, "_near_pairs", record_rows)
    monkeypatch.setattr(similarity, "_nearest_of_all", None)
    grown = updated_graph(vectors_ND, 4, 0.0, KnownGraph(first, RowMap.of_previous(np.arange(-1, 299), 299)))
    assert searched == [0] and grown.nnz > first.nnz
    searched.clear()
    shrunk = updated_graph(vectors_ND[1:], 4, 0.0, KnownGraph(grown, RowMap.of_previous(np.arange(1, 300), 300)))
    assert same_bytes(shrunk, first)
    assert 0 < len(searched) < 30, (
        "only the nodes that had the removed node among their nearest neighbours should be searched"
    )


def test_ties_are_broken_by_row_order_even_if_a_search_returns_only_some_of_the_identical_vectors() -> None:
    """Which of 40 identical vectors become neighbours does not depend on the order in which a library finds them."""
    vectors_ND = np.concatenate([np.repeat(vectors(1, 3), 40, axis=0), vectors(5, 4)])
    graph = similarity_graph(vectors_ND, 2, -1.0)
    assert np.flatnonzero(graph[[39], :].toarray()).tolist() == [0, 1]
    assert np.flatnonzero(graph[[0], :].toarray()).tolist()[:2] == [1, 2] and graph[[0], :].nnz >= 39


def test_a_thousand_identical_vectors_take_the_memory_of_a_batch_not_of_all_pairs() -> None:
    tracemalloc.start()
    graph = similarity_graph(np.repeat(vectors(1, 3), 1_000, axis=0), 10, 0.5)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert graph.nnz == 2 * (1_000 * 10 - 10 * 11 // 2) and peak_bytes < 30e6


def test_a_new_node_joins_the_community_with_the_largest_sum_of_edge_weights_and_known_nodes_stay() -> None:
    """Nodes 0–1 and 2–3 are known communities, 6 is a third. New nodes: 4 has two edges to the first and one heavier edge to the second, 5 has one edge
    to 4, 7 has none.
    """
    edges = {(0, 1): 0.9, (2, 3): 0.9, (0, 4): 0.375, (1, 4): 0.25, (2, 4): 0.5, (4, 5): 0.2}
    graph = np.zeros((8, 8), np.float32)
    for (one, other), weight in edges.items():
        graph[one, other] = graph[other, one] = weight
    known_N = np.array([8, 8, 3, 3, -1, -1, 12, -1])
    assert carry_communities(sp.csr_array(graph), known_N).tolist() == [0, 0, 1, 1, 0, 0, 2, 3]
    assert known_N.tolist() == [8, 8, 3, 3, -1, -1, 12, -1]
    graph[0, 4] = graph[4, 0] = 0.25
    found = carry_communities(sp.csr_array(graph), known_N).tolist()
    assert found[4] == found[5] == 1, (
        "of two communities with equal weights, the one with the lower known number should be chosen"
    )


def vectors_in_groups(count: int, dimensions: int) -> np.ndarray:
    """Vectors in groups of about ten similar ones, like texts about the same subject."""
    random = np.random.default_rng(0)
    middles = random.normal(size=(count // 10, dimensions))
    around = random.normal(size=(count, dimensions))
    return unit_rows((middles[random.integers(len(middles), size=count)] + 0.6 * around).astype(np.float32))


@pytest.mark.parametrize("dimensions", [64, 33])
def test_an_approximate_graph_has_nearly_all_exact_edges_with_identical_weights(
    dimensions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors_ND = vectors_in_groups(3_000, dimensions)
    exact = similarity_graph(vectors_ND, 5, 0.5)
    monkeypatch.setattr(similarity, "FLAT_LIMIT", 1_000)
    near = similarity_graph(vectors_ND, 5, 0.5)
    both = near.multiply(exact.astype(bool)).tocoo()
    assert both.nnz >= 0.98 * exact.nnz and (near - near.T).nnz == 0 and near.diagonal().max() == 0
    assert np.array_equal(both.data, exact.multiply(near.astype(bool)).tocoo().data)
    assert (near != similarity_graph(vectors_ND, 5, 0.5)).nnz == 0, "the same vectors should give the same graph"
    halves = Vectors.of(vectors_ND.astype(np.float16))
    assert (similarity_graph(halves, 5, 0.5) != similarity_graph(np.asarray(halves), 5, 0.5)).nnz == 0
