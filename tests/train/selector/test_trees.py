"""Trees as plain arrays predict as scikit-learn's trees do; the loss on dev rows determines their number; a weight on relevant rows is corrected for."""

import numpy as np
import pytest

from graph.documents.questions import SPLITS
from graph.trees import forest_logits
from tests.train.labelled import write_rows
from tests.train.selector.rows import rows_of_all_splits
from train.classifiers import best_count, fit_trees, log_loss, to_forest
from train.run.settings import SelectorSettings
from train.selector.selector_data import Examples, examples_of, read_datasets


@pytest.fixture(scope="module")
def splits(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Examples]:
    """The examples of each split."""
    datasets = read_datasets([write_rows(tmp_path_factory.mktemp("world") / "a", rows_of_all_splits())])
    return {split: examples_of(datasets, split) for split in SPLITS}


def settings(**changes: object) -> SelectorSettings:
    return SelectorSettings.model_validate({"data": ("a",), "output": "out", "max_trees": 60, **changes})


@pytest.mark.parametrize("leaves", [2, 8, 31])
def test_trees_as_arrays_predict_as_scikit_learn_does(splits: dict[str, Examples], leaves: int) -> None:
    classifier = fit_trees(splits["train"], splits["dev"], settings(max_leaves=leaves, min_examples_per_leaf=5))
    forest = to_forest(classifier, classifier.n_iter_, 1.0)
    features_nF = np.concatenate(
        [splits["test"].features_nF, np.full((1, 15), 9, np.float32), np.full((1, 15), -9, np.float32)]
    )
    np.testing.assert_allclose(forest_logits(forest, features_nF), classifier.decision_function(features_nF), atol=1e-9)


def test_a_forest_of_fewer_trees_equals_an_earlier_stage_in_scikit_learn(splits: dict[str, Examples]) -> None:
    classifier = fit_trees(splits["train"], splits["dev"], settings())
    stages = list(classifier.staged_decision_function(splits["test"].features_nF))
    logits_n = forest_logits(to_forest(classifier, 7, 1.0), splits["test"].features_nF)
    np.testing.assert_allclose(logits_n, stages[6].ravel(), atol=1e-9)


def test_the_number_of_trees_is_the_one_with_the_lowest_loss_on_dev(splits: dict[str, Examples]) -> None:
    classifier = fit_trees(
        splits["train"], splits["dev"], settings(learning_rate=0.5, max_trees=200, patience_trees=10)
    )
    dev = splits["dev"]
    losses = [
        log_loss(forest_logits(to_forest(classifier, count, 1.0), dev.features_nF), dev.label_n, 1.0)
        for count in range(1, classifier.n_iter_ + 1)
    ]
    assert best_count(classifier) == 1 + int(np.argmin(losses)) < classifier.n_iter_ < 200


def test_a_weight_on_relevant_rows_is_corrected_for(splits: dict[str, Examples]) -> None:
    plain, weighted = (
        forest_logits(
            to_forest(fit_trees(splits["train"], splits["dev"], settings(), weight), 40, weight),
            splits["test"].features_nF,
        )
        for weight in (1.0, 4.0)
    )
    share = splits["test"].label_n.mean()
    for logits_n in (plain, weighted):
        assert abs((1 / (1 + np.exp(-logits_n))).mean() - share) < 0.02
    assert np.abs(plain - weighted).max() > 0.1, "the weight should change the trees"


def test_training_is_deterministic(splits: dict[str, Examples]) -> None:
    one, two = (to_forest(fit_trees(splits["train"], splits["dev"], settings()), 20, 1.0) for _ in range(2))
    assert np.array_equal(one.threshold_V, two.threshold_V) and np.array_equal(one.value_V, two.value_V)
