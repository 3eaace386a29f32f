"""Gradient-boosted trees that expect a mode's Recall@5 (scikit-learn's histogram trees, squared error), as plain arrays.

Legend: Q questions, M modes, F features.
"""

from __future__ import annotations

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from graph.retrieve.learned.forest import Forest, forest_logits
from graph.shared.types import Floats
from train.router.settings import RouterSettings
from train.router.types import Doubles
from train.shared.trees import to_forest


def fit_forest(features_QF: Floats, recall_Q: Doubles, settings: RouterSettings) -> Forest:
    """The trees of one mode."""
    trees = HistGradientBoostingRegressor(
        learning_rate=settings.learning_rate,
        max_iter=settings.trees,
        max_leaf_nodes=settings.max_leaves,
        min_samples_leaf=settings.min_examples_per_leaf,
        early_stopping=False,
        random_state=settings.seed,
    )
    return to_forest(trees.fit(features_QF, recall_Q), settings.trees, 1.0)


def unseen_recall(features_QF: Floats, recall_QM: Doubles, settings: RouterSettings) -> Doubles:
    """Each question's expected recall from trees that were grown on the other folds: [Q, M]."""
    fold_Q = np.random.default_rng(settings.seed).permutation(len(features_QF)) % settings.folds
    expected_QM = np.zeros_like(recall_QM)
    for fold in range(settings.folds):
        own_Q = fold_Q == fold
        for mode in range(recall_QM.shape[1]):
            forest = fit_forest(features_QF[~own_Q], recall_QM[~own_Q, mode], settings)
            expected_QM[own_Q, mode] = forest_logits(forest, features_QF[own_Q])
    return np.clip(expected_QM, 0, 1)
