"""Ways of routing by hand-worked numbers, and the prices that are chosen."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as of_numpy

from graph.retrieve.learned.router import QUERY_FEATURES
from train.router.policy import (
    BROAD,
    Policy,
    best_single,
    cost_QM,
    fit_policy,
    oracle_choice,
    point,
    routed,
    rule_choice,
)
from train.router.route_data import Questions

RECALL_QM = np.array([[1.0, 1.0, 0.0], [0.5, 1.0, 1.0], [1.0, 1.0, 1.0], [0.0, 0.5, 0.0]])


def questions(recall_QM: np.ndarray = RECALL_QM, tokens: float = 0.0) -> Questions:
    """Modes dense (1 ms), hops (9 ms) and hierarchy (2 ms, and tokens)."""
    count = len(recall_QM)
    return Questions(
        ids=tuple(f"q{row}" for row in range(count)),
        kinds=("",) * count,
        texts=tuple(f"Q {row}?" for row in range(count)),
        names=("a",),
        dataset_Q=np.zeros(count, np.int64),
        modes=("dense", "hops", "hierarchy"),
        features_QF=np.zeros((count, len(QUERY_FEATURES)), np.float32),
        recall_QM=recall_QM,
        ms_QM=np.tile([1.0, 9.0, 2.0], (count, 1)),
        tokens_QM=np.tile([0.0, 0.0, tokens], (count, 1)),
        features_ms_Q=np.full(count, 0.5),
    )


def test_the_best_single_mode_is_the_best_on_average_and_then_the_cheapest() -> None:
    assert best_single(questions(), 0) == 1
    assert best_single(questions(np.ones((4, 3))), 0) == 0


def test_a_point_by_hand() -> None:
    found = point("x", questions(), np.array([0, 1, 0, 2]), routing_ms=0.25)
    assert (found.recall, found.milliseconds) == ((1 + 1 + 1 + 0) / 4, (1 + 9 + 1 + 2) / 4 + 0.25)
    assert found.chosen == {"dense": 2, "hops": 1, "hierarchy": 1}


def test_the_oracle_takes_the_cheapest_of_the_best_and_tokens_count() -> None:
    assert oracle_choice(questions(), 0).tolist() == [0, 2, 0, 1]
    assert oracle_choice(questions(tokens=10.0), 1.0).tolist() == [0, 1, 0, 1]
    assert cost_QM(questions(tokens=10.0), 0.5)[0].tolist() == [1, 9, 7]


def test_the_rule_sends_broad_questions_to_the_hierarchy_and_others_to_hops() -> None:
    asked = questions()
    asked.features_QF[2, BROAD] = 1
    assert (found := rule_choice(asked)) is not None and found.tolist() == [1, 1, 2, 1]
    assert rule_choice(replace(asked, modes=("dense", "lexical", "hierarchy"))) is None


def test_a_price_is_paid_for_every_millisecond_and_the_margin_keeps_the_default() -> None:
    expected_QM = np.array([[0.9, 0.95, 0.1]])
    cost_M = np.array([1.0, 9.0, 2.0])
    assert routed(expected_QM, cost_M, Policy(1, 0.0, 0.0)).tolist() == [1]
    assert routed(expected_QM, cost_M, Policy(1, 0.01, 0.0)).tolist() == [0]
    assert routed(expected_QM, cost_M, Policy(1, 0.01, 0.04)).tolist() == [1], "worth only .03 more"
    assert routed(expected_QM, cost_M, Policy(0, 0.0, 0.1)).tolist() == [0], "the default is another"


def test_perfect_foresight_costs_little_and_loses_nothing() -> None:
    policy = fit_policy(questions(), RECALL_QM, 0.0, 0.0)
    chosen_Q = routed(RECALL_QM, np.array([1.0, 9.0, 2.0]), policy)
    assert chosen_Q.tolist() == [0, 2, 0, 1]


def test_where_nothing_can_be_told_the_best_single_mode_stays() -> None:
    blind_QM = np.tile([0.9, 0.1, 0.1], (4, 1))
    policy = fit_policy(questions(), blind_QM, 0.0, 0.01)
    assert routed(blind_QM, np.array([1.0, 9.0, 2.0]), policy).tolist() == [1, 1, 1, 1]


@settings(max_examples=15, deadline=None)
@given(
    of_numpy.arrays(np.float64, (8, 3), elements=st.sampled_from([0.0, 0.5, 1.0])),
    of_numpy.arrays(np.float64, (8, 3), elements=st.floats(0, 1)),
    st.sampled_from([0.0, 0.05, 0.3]),
)
def test_the_policy_keeps_its_tolerance_and_never_costs_more_than_a_mode_that_does(
    recall_QM: np.ndarray, expected_QM: np.ndarray, tolerance: float
) -> None:
    asked = questions(recall_QM)
    policy = fit_policy(asked, expected_QM, 0.0, tolerance)
    chosen_Q = routed(expected_QM, asked.ms_QM.mean(axis=0), policy)
    reached = point("router", asked, chosen_Q)
    best = recall_QM.mean(axis=0).max()
    assert reached.recall >= best - tolerance - 1e-12
    if recall_QM[:, 0].mean() >= best - tolerance:
        dear = fit_policy(asked, expected_QM, 0.0, 1.0)
        assert point("any", asked, routed(expected_QM, asked.ms_QM.mean(axis=0), dear)).milliseconds <= 1 + 1e-12


@pytest.mark.parametrize("default", [0, 1, 2])
def test_the_modes_keep_their_places_whatever_the_default(default: int) -> None:
    expected_QM = np.eye(3)
    assert routed(expected_QM, np.zeros(3), Policy(default, 0.0, 0.0)).tolist() == [0, 1, 2]
