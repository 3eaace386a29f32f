"""Temperature, threshold, reliability and average precision, compared with hand-worked numbers and slow references."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph.retrieve.learned.light import FEATURES
from graph.trees import probabilities
from tests.growth import assert_linear
from train.classifiers import (
    calibration_error,
    fit_temperature,
    log_loss,
    reliability,
    threshold_figures,
    threshold_for,
)
from train.selector.selector_data import Examples, average_precisions, rank_datasets


def test_log_loss_equals_a_calculation_by_hand() -> None:
    logits_n = np.log([3.0, 1.0])
    assert log_loss(logits_n, np.array([1, 0]), 1.0) == pytest.approx(-(np.log(0.75) + np.log(0.5)) / 2)
    assert log_loss(logits_n, np.array([1, 0]), 0.5) == pytest.approx(-(np.log(0.9) + np.log(0.5)) / 2)


@pytest.mark.parametrize("true_temperature", [0.5, 1.0, 3.0])
def test_the_temperature_that_generated_the_labels_is_found(true_temperature: float) -> None:
    random = np.random.default_rng(0)
    logits_n = random.normal(-1, 3, 40_000)
    label_n = (random.uniform(size=40_000) < probabilities(logits_n, true_temperature)).astype(np.int64)
    found = fit_temperature(logits_n, label_n)
    assert found == pytest.approx(true_temperature, rel=0.05)
    grid = [log_loss(logits_n, label_n, temperature) for temperature in np.geomspace(0.1, 10, 200)]
    assert log_loss(logits_n, label_n, found) <= min(grid) + 1e-9


@given(
    st.lists(st.tuples(st.integers(0, 20), st.booleans()), min_size=1, max_size=30).filter(
        lambda pairs: any(label for _, label in pairs)
    ),
    st.sampled_from([0.1, 0.5, 0.9, 1.0]),
)
def test_the_threshold_is_the_highest_with_the_target_recall(pairs: list[tuple[int, bool]], target: float) -> None:
    probability_n = np.array([value / 20 for value, _ in pairs])
    label_n = np.array([label for _, label in pairs], np.int64)
    found = threshold_for(probability_n, label_n, target)

    def recall(threshold: float) -> float:
        return threshold_figures(probability_n, label_n, threshold)["recall"]

    assert recall(found) >= target - 1e-9
    assert all(recall(value) < target - 1e-9 for value in probability_n if value > found)


def test_the_figures_of_a_threshold_equal_a_calculation_by_hand() -> None:
    found = threshold_figures(np.array([0.9, 0.6, 0.4, 0.2]), np.array([1, 0, 1, 1]), 0.4)
    assert found == pytest.approx({"recall": 2 / 3, "precision": 2 / 3, "selected": 0.75})
    assert threshold_figures(np.array([0.1]), np.array([1]), 0.5) == {"recall": 0.0, "precision": 0.0, "selected": 0.0}


def test_the_reliability_table_equals_a_calculation_by_hand() -> None:
    probability_n = np.array([0.0, 0.005, 0.31, 0.39, 0.95, 1.0])
    bins = reliability(probability_n, np.array([0, 0, 0, 1, 1, 1]))
    assert [(each.low, each.high, each.examples, each.share_relevant) for each in bins] == [
        (0.0, 0.01, 2, 0.0),
        (0.3, 0.4, 2, 0.5),
        (0.9, 1.0, 2, 1.0),
    ]
    assert [each.mean_probability for each in bins] == pytest.approx([0.0025, 0.35, 0.975])
    assert calibration_error(bins) == pytest.approx((0.0025 + 0.15 + 0.025) / 3)


def test_average_precision_over_the_propositions_of_each_questions_passages_equals_a_calculation_by_hand() -> None:
    cosine_n = np.array([0.9, 0.8, 0.7, 0.99, 0.1, 0.2, 0.5], np.float32)
    features_nF = np.zeros((7, len(FEATURES)), np.float32)
    features_nF[:, FEATURES.index("similarity")] = cosine_n
    examples = Examples(
        features_nF,
        label_n=np.array([0, 1, 1, 0, 1, 0, 0]),
        question_n=np.array([4, 4, 4, 4, 7, 7, 9]),
        own_n=np.array([True, True, True, False, True, True, True]),
        dataset_n=np.zeros(7, np.int64),
    )
    cosine = average_precisions(examples, cosine_n.astype(np.float64))
    assert cosine == pytest.approx([(1 / 2 + 2 / 3) / 2, 1 / 2]), (
        "a question without a relevant proposition should be left out"
    )
    order = [3, 4, 2, 6, 0, 5, 1]
    mixed = Examples(**{name: values_n[order] for name, values_n in vars(examples).items()})
    assert average_precisions(mixed, cosine_n[order].astype(np.float64)).tolist() == cosine.tolist()
    (ranked,) = rank_datasets(examples, examples.label_n.astype(np.float64), ["a"], "dev")
    assert (ranked.questions, ranked.selector) == (2, 1.0)
    assert ranked.cosine == pytest.approx(cosine.mean())
    assert ranked.standard_error == pytest.approx(abs((1 - cosine[0]) - (1 - cosine[1])) / 2)


def test_average_precisions_take_time_linear_in_the_number_of_questions() -> None:
    """Without relevant propositions, no average precision is computed, which would take far longer."""

    def prepare(questions: int) -> Callable[[], object]:
        question_n = np.repeat(np.arange(questions), 40)
        zeros_n = np.zeros(len(question_n), np.int64)
        examples = Examples(np.zeros((len(question_n), 1), np.float32), zeros_n, question_n, zeros_n == 0, zeros_n)
        return lambda: average_precisions(examples, zeros_n.astype(np.float64))

    assert_linear(prepare, 500)
