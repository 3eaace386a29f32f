"""The similarity graph, its communities and extractive summaries, against slow twins and closed forms."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given
from hypothesis import strategies as st

from graph.encode.encoder import unit_rows
from graph.layers.communities import find_communities, modularity
from graph.layers.similarity import similarity_graph
from graph.layers.summarise import choose_sentences


def vectors(count: int, seed: int, dimensions: int = 8) -> np.ndarray:
    return unit_rows(np.random.default_rng(seed).normal(size=(count, dimensions)).astype(np.float32))


@given(st.integers(2, 40), st.integers(0, 10_000), st.integers(1, 6), st.sampled_from([0.0, 0.3]))
def test_graph_equals_its_slow_twin(count: int, seed: int, neighbours: int, least: float) -> None:
    vectors_ND = vectors(count, seed)
    cosines_NN = vectors_ND @ vectors_ND.T
    assume(least == 0 or np.abs(cosines_NN - least).min() > 1e-5)
    expected = np.zeros_like(cosines_NN)
    for i in range(count):
        others = sorted((j for j in range(count) if j != i), key=lambda j: -cosines_NN[i, j])[:neighbours]
        for j in others:
            if cosines_NN[i, j] >= least and cosines_NN[i, j] > 0:
                expected[i, j] = expected[j, i] = cosines_NN[i, j]
    assert np.abs(similarity_graph(vectors_ND, neighbours, least).toarray() - expected).max() < 1e-5


def test_identical_texts_are_neighbours_at_cosine_one_and_never_their_own() -> None:
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
def test_two_cliques_and_a_loner_are_three_communities(method: str) -> None:
    clique = np.ones((4, 4)) - np.eye(4)
    graph = sp.csr_array(sp.block_diag([clique, clique, np.zeros((1, 1))]).astype(np.float32))
    bridged = graph.tolil()
    bridged[3, 4] = bridged[4, 3] = 0.1
    found = find_communities(sp.csr_array(bridged), method, seed=1)
    assert found.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2]
    assert np.array_equal(found, find_communities(sp.csr_array(bridged), method, seed=1))


def test_weights_decide_where_counts_are_equal() -> None:
    square = np.array([[0, 5, 0, 1], [5, 0, 1, 0], [0, 1, 0, 5], [1, 0, 5, 0]], np.float32)
    assert find_communities(sp.csr_array(square), "leidenalg", 0).tolist() == [0, 0, 1, 1]


def test_a_summary_prefers_the_middle_avoids_repeats_and_keeps_its_length() -> None:
    vectors_SD = unit_rows(np.array([[1, 0.1, 0], [1, 0.1, 0], [1, -0.3, 0.2], [0, 0, -1]], np.float32))
    assert choose_sentences(vectors_SD, lambda row: 10, 20) == [0, 2]


def test_a_summary_has_a_sentence_whatever_its_length() -> None:
    vectors_SD = unit_rows(np.array([[1, 0, 0], [0.9, 0.4, 0], [0.8, 0, 0.6]], np.float32))
    assert len(choose_sentences(vectors_SD, lambda row: 99, 10)) == 1


def test_modularity_of_two_joined_triangles_by_hand() -> None:
    graph = np.zeros((6, 6), np.float32)
    for a, b in [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5), (2, 3)]:
        graph[a, b] = graph[b, a] = 1
    assert modularity(sp.csr_array(graph), np.array([0, 0, 0, 1, 1, 1])) == pytest.approx(12 / 14 - 2 * (7 / 14) ** 2)
