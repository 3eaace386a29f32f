"""Walks compared with slow references and closed forms (docs/developers/behaviours.md, 1–4, 6 and 8)."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from graph.config import parse_settings
from graph.errors import UserError
from graph.random_walk import (
    MAX_DAMPING,
    TOLERANCE,
    attraction,
    bipartite_transition,
    make_chain,
    personalised_pagerank,
    query_aware_transition,
    query_aware_walks,
    restart_at,
    semantic_transition,
    structural_transition,
)
from graph.retrieve.parts.query import SuggestSettings


def incidence(seed: int, propositions: int = 12, hubs: int = 7) -> sp.csr_array:
    dense = np.random.default_rng(seed).random((propositions, hubs)) < 0.25
    return sp.csr_array(dense.astype(np.float32))


def slow_structural(incidence_NB: sp.csr_array) -> np.ndarray:
    """T_s (ToPG Eq. 5), computed entry by entry in float64."""
    A = incidence_NB.toarray().astype(float)
    N, B = A.shape
    T = np.zeros((N, N))
    for i in range(N):
        for b in range(B):
            for j in range(N):
                if A[i, b] and A[j, b]:
                    T[i, j] += A[i, b] / A[i].sum() * A[j, b] / A[:, b].sum()
        T[i, i] = 0
        if T[i].sum() > 0:
            T[i] /= T[i].sum()
    return T


@given(st.integers(0, 5000))
def test_the_structural_transition_equals_a_slow_reference(seed: int) -> None:
    block = incidence(seed)
    expected = slow_structural(block)
    T_s = structural_transition(block).toarray()
    assert np.allclose(T_s, expected, atol=1e-6) and np.all(np.diag(T_s) == 0)
    sums = T_s.sum(axis=1)
    assert np.all(np.isclose(sums, 1, atol=1e-5) | (sums == 0))


def test_below_the_threshold_attraction_is_exactly_zero_and_above_it_exponential() -> None:
    found = attraction(np.array([0.39999, 0.4, 0.6, -1.0], np.float32), temperature=0.1, threshold=0.4)
    assert found[0] == 0 and found[3] == 0
    assert found[2] / found[1] == pytest.approx(np.exp(2), rel=1e-4)
    assert not attraction(np.full(3, 0.1, np.float32), 0.1, 0.4).any()
    assert np.isfinite(attraction(np.ones(2, np.float32), 1e-3, 0.0)).all()


def test_a_semantic_step_equals_a_calculation_by_hand() -> None:
    T_s = sp.csr_array(np.array([[0, 0.5, 0.5], [1, 0, 0], [1, 0, 0]], np.float32))
    assert semantic_transition(T_s, np.array([9.0, 1.0, 3.0], np.float32)).toarray().tolist() == [
        [0, 0.25, 0.75],
        [1, 0, 0],
        [1, 0, 0],
    ]


@given(st.integers(0, 5000))
def test_at_lambda_one_the_query_has_no_effect(seed: int) -> None:
    T_s = structural_transition(incidence(seed))
    attractions = np.random.default_rng(seed).random(T_s.shape[0]).astype(np.float32)
    assert np.array_equal(query_aware_transition(T_s, attractions, 1.0).toarray(), T_s.toarray())


@given(st.integers(0, 5000), st.floats(0, 1), st.floats(0.05, 0.95))
def test_walks_stay_stochastic_with_dead_rows_and_isolated_vertices(seed: int, weight: float, damping: float) -> None:
    T_s = structural_transition(incidence(seed))
    M = query_aware_transition(T_s, attraction(np.linspace(0, 1, T_s.shape[0], dtype=np.float32), 0.1, 0.8), weight)
    mass = personalised_pagerank(M, restart_at(np.array([0, 3]), M.shape[0]), damping)
    assert mass.min() >= 0 and mass.sum() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("damping", [0.15, 0.5, 0.85])
def test_pagerank_on_two_vertices_equals_the_closed_form(damping: float) -> None:
    swap = np.array([[0, 1], [1, 0]], np.float32)
    mass = personalised_pagerank(swap, restart_at(np.array([0]), 2), damping)
    assert mass[:, 0] == pytest.approx([1 / (1 + damping), damping / (1 + damping)], abs=1e-5)


@given(st.integers(0, 5000))
def test_pagerank_solves_its_linear_system(seed: int) -> None:
    T = bipartite_transition(incidence(seed))
    size = T.shape[0]
    restart = np.random.default_rng(seed).random((size, 1)).astype(np.float32) + 0.01
    restart /= restart.sum()
    exact = stationary(T.toarray().astype(float), restart[:, 0].astype(float), 0.85)
    assert personalised_pagerank(T, restart, 0.85)[:, 0] == pytest.approx(exact, abs=1e-5)
    assert np.array_equal(personalised_pagerank(make_chain(T), restart, 0.85), personalised_pagerank(T, restart, 0.85))


def ring(vertices: int) -> sp.csr_array:
    """A cycle, on which a walk from one vertex needs many steps to converge."""
    row = np.arange(vertices)
    step = sp.coo_array((np.full(vertices, 0.5), (row, (row + 1) % vertices)), (vertices, vertices)).tocsr()
    return sp.csr_array((step + step.T).astype(np.float32))


GRAPHS = {
    "ring": ring(400),
    "random": structural_transition(incidence(3, 300, 90)),
    "with dead rows": structural_transition(incidence(4, 300, 3000)),
    "bipartite": bipartite_transition(incidence(5, 200, 60)),
}


def stationary(transition_VV: np.ndarray, restart_V: np.ndarray, damping: float) -> np.ndarray:
    """The stationary distribution as the solution of its linear system, in float64."""
    stochastic = transition_VV + np.outer(1 - transition_VV.sum(axis=1), restart_V)
    return np.linalg.solve(np.eye(len(restart_V)) - damping * stochastic.T, (1 - damping) * restart_V)


@pytest.mark.long
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("damping", [0.0, 0.3, 0.85, 0.9, 0.95, 0.97, MAX_DAMPING])
def test_walks_converge_with_every_allowed_damping_factor(graph: str, damping: float) -> None:
    """For both kinds of walk, the differences from numpy.linalg.solve, summed over all vertices, are below TOLERANCE plus float32 rounding."""
    T = GRAPHS[graph]
    size, seeds = T.shape[0], [0, 7]
    tolerance = TOLERANCE + 3e-7 / (1 - damping)
    restart = np.hstack([restart_at(np.array([seed]), size) for seed in seeds])
    plain = personalised_pagerank(T, restart, damping)
    attractions = np.random.default_rng(1).random((size, len(seeds))).astype(np.float32)
    query_aware = query_aware_walks(T, attractions, restart, 0.5, damping)
    for column in range(len(seeds)):
        exact = stationary(T.toarray().astype(float), restart[:, column].astype(float), damping)
        assert np.abs(plain[:, column] - exact).sum() < tolerance
        transition = query_aware_transition(T, attractions[:, column], 0.5).toarray().astype(float)
        exact = stationary(transition, restart[:, column].astype(float), damping)
        assert np.abs(query_aware[:, column] - exact).sum() < tolerance


@pytest.mark.parametrize("damping", [1.0, 1.5, -0.1, float("nan")])
def test_a_damping_factor_below_0_or_not_below_1_is_refused(damping: float) -> None:
    restart = restart_at(np.array([0]), 9)
    with pytest.raises(ValueError, match="damping"):
        personalised_pagerank(ring(9), restart, damping)
    with pytest.raises(ValueError, match="damping"):
        query_aware_walks(ring(9), np.ones((9, 1), np.float32), restart, 0.5, damping)


def test_settings_refuse_a_damping_factor_at_which_walks_converge_too_slowly() -> None:
    with pytest.raises(UserError, match=r"damping.*0\.99"):
        parse_settings(SuggestSettings, {"damping": 0.995}, "test")


def test_a_batch_equals_single_runs_and_components_do_not_mix() -> None:
    block = sp.csr_array(sp.block_diag([incidence(1), incidence(2)]).astype(np.float32))
    T = bipartite_transition(block)
    size = T.shape[0]
    columns = [restart_at(np.array([row]), size) for row in (0, 5, 13)]
    batch = personalised_pagerank(T, np.hstack(columns), 0.85)
    for number, column in enumerate(columns):
        assert np.allclose(batch[:, [number]], personalised_pagerank(T, column, 0.85), atol=2e-6)
    assert batch[12:24, 0].max() == 0 and batch[:12, 2].max() == 0


@given(st.integers(0, 5000), st.randoms(use_true_random=False))
def test_relabelling_the_vertices_permutes_the_result(seed: int, order: object) -> None:
    block = incidence(seed)
    permutation = list(range(block.shape[0]))
    order.shuffle(permutation)  # type: ignore[attr-defined]
    T, T_moved = structural_transition(block), structural_transition(sp.csr_array(block[permutation, :]))
    restart = np.random.default_rng(seed).random((T.shape[0], 1)).astype(np.float32) + 0.01
    mass, moved = personalised_pagerank(T, restart, 0.85), personalised_pagerank(T_moved, restart[permutation], 0.85)
    assert np.allclose(mass[permutation], moved, atol=1e-5)


def test_an_isolated_seed_keeps_its_mass_and_bad_restarts_are_refused() -> None:
    isolated = sp.csr_array((3, 3), dtype=np.float32)
    assert personalised_pagerank(isolated, restart_at(np.array([1]), 3), 0.85)[:, 0].tolist() == [0, 1, 0]
    with pytest.raises(ValueError, match="at least one seed"):
        restart_at(np.array([], np.int64), 3)
    with pytest.raises(ValueError, match="positive sum"):
        personalised_pagerank(isolated, np.zeros((3, 1), np.float32), 0.85)
