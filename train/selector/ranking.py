"""How well scores rank each question's propositions: mean average precision, the selector's beside the cosine's.

Legend: n examples.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score

from graph.retrieve.learned.features import FEATURES
from train.selector.types import Examples, Ranked

Doubles = NDArray[np.float64]
COSINE = FEATURES.index("nearness")


def average_precisions(examples: Examples, scores_n: Doubles) -> Doubles:
    """The average precision of each question with a relevant proposition among its own passages', over those: one a question."""
    found = []
    for question in np.unique(examples.question_n[examples.own_n]):
        own_n = examples.own_n & (examples.question_n == question)
        if examples.label_n[own_n].any():
            found.append(average_precision_score(examples.label_n[own_n], scores_n[own_n]))
    return np.array(found, np.float64)


def rank_datasets(examples: Examples, scores_n: Doubles, names: Sequence[str], split: str) -> tuple[Ranked, ...]:
    """The figures of each dataset that has such questions in this split."""
    found = []
    for place, name in enumerate(names):
        part = of_dataset(examples, place)
        chosen = average_precisions(part, scores_n[examples.dataset_n == place])
        cosine = average_precisions(part, part.features_nF[:, COSINE].astype(np.float64))
        if len(chosen):
            error = float((chosen - cosine).std(ddof=1) / np.sqrt(len(chosen))) if len(chosen) > 1 else 0.0
            found.append(Ranked(name, split, len(chosen), float(chosen.mean()), float(cosine.mean()), error))
    return tuple(found)


def of_dataset(examples: Examples, place: int) -> Examples:
    """The examples of one dataset."""
    own_n = examples.dataset_n == place
    return Examples(
        examples.features_nF[own_n],
        examples.label_n[own_n],
        examples.question_n[own_n],
        examples.own_n[own_n],
        examples.dataset_n[own_n],
    )
