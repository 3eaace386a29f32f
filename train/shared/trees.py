"""Gradient-boosted trees (scikit-learn's histogram trees), with early stopping on dev, and their conversion to the plain arrays of a `Forest`.

Legend: n examples, F features, T trees, V nodes of all trees, concatenated.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier

from graph.trees import Forest
from graph.types import Floats, Ints
from train.run.settings import SelectorSettings, VerifierSettings


class Examples(Protocol):
    """Labelled examples: float32[n, F] and int64[n] of zeros and ones."""

    @property
    def features_nF(self) -> Floats: ...
    @property
    def label_n(self) -> Ints: ...


def fit_trees(
    train: Examples, dev: Examples, settings: SelectorSettings | VerifierSettings, positive_weight: float = 1.0
) -> HistGradientBoostingClassifier:
    """Trees fitted on `train` by log loss, until that of `dev` has not fallen for `patience_trees` trees; both losses use `weights`."""
    trees = HistGradientBoostingClassifier(
        learning_rate=settings.learning_rate,
        max_iter=settings.max_trees,
        max_leaf_nodes=settings.max_leaves,
        min_samples_leaf=settings.min_examples_per_leaf,
        l2_regularization=settings.l2,
        early_stopping=True,
        n_iter_no_change=settings.patience_trees,
        scoring="loss",
        tol=0.0,
        random_state=settings.seed,
    )
    return trees.fit(
        train.features_nF,
        train.label_n,
        sample_weight=weights(train, positive_weight),
        X_val=dev.features_nF,
        y_val=dev.label_n,
        sample_weight_val=weights(dev, positive_weight),
    )


def weights(examples: Examples, positive_weight: float) -> NDArray[np.float64]:
    """The weight of each example: [n]."""
    return np.where(examples.label_n == 1, positive_weight, 1.0)


def best_count(trees: HistGradientBoostingClassifier) -> int:
    """The number of trees with the lowest loss on dev; at least 1."""
    return max(1, int(np.argmax(trees.validation_score_)))


def to_forest(trees: HistGradientBoostingClassifier, count: int, positive_weight: float = 1.0) -> Forest:
    """The first `count` trees. Training with a weight w of the positive examples multiplies the odds by w, so ln w is subtracted from the base."""
    nodes_T = [tree[0].nodes for tree in trees._predictors[:count]]
    starts_T = np.cumsum([0, *(len(nodes) for nodes in nodes_T[:-1])]).astype(np.int64)
    feature, threshold, left, right, value = zip(*map(columns_of, nodes_T, starts_T.tolist()), strict=True)
    return Forest(
        feature_V=np.concatenate(feature),
        threshold_V=np.concatenate(threshold),
        left_V=np.concatenate(left),
        right_V=np.concatenate(right),
        value_V=np.concatenate(value),
        root_T=starts_T,
        base=float(trees._baseline_prediction[0, 0]) - float(np.log(positive_weight)),
        depth=int(max(nodes["depth"].max() for nodes in nodes_T)),
    )


def library_versions() -> dict[str, str]:
    """The versions of the libraries that determine the trees, for records."""
    return {name: version(name) for name in ("scikit-learn", "numpy")}


def columns_of(nodes: NDArray[Any], start: int) -> tuple[NDArray[Any], ...]:
    """Feature, threshold, left, right and value of a tree's nodes, which begin at row `start`; a leaf points to itself."""
    leaf_V = nodes["is_leaf"].astype(bool)
    self_V = start + np.arange(len(nodes), dtype=np.int64)
    return (
        np.where(leaf_V, 0, nodes["feature_idx"]).astype(np.int64),
        np.where(leaf_V, 0, nodes["num_threshold"]).astype(np.float64),
        np.where(leaf_V, self_V, start + nodes["left"].astype(np.int64)),
        np.where(leaf_V, self_V, start + nodes["right"].astype(np.int64)),
        nodes["value"].astype(np.float64),
    )
