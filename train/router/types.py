"""The nouns of router training: questions as arrays, what a way of routing reaches, and what a finished run tells of itself.

Legend: Q questions, M modes, F features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graph.shared.modes import Mode
from graph.shared.types import Floats, Ints

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Questions:
    """Questions and what each mode did for them. `ms_QM` are typical milliseconds: each mode's median over its dataset.

    `features_ms_Q` are those of making a question's features, again its dataset's median; `names` the datasets, `dataset_Q` rows
    of them.
    """

    ids: tuple[str, ...]
    kinds: tuple[str, ...]
    texts: tuple[str, ...]
    names: tuple[str, ...]
    dataset_Q: Ints
    modes: tuple[Mode, ...]
    features_QF: Floats
    recall_QM: Doubles
    ms_QM: Doubles
    tokens_QM: Doubles
    features_ms_Q: Doubles


@dataclass(frozen=True)
class Point:
    """A way of routing: mean Recall@5, milliseconds (with the routing) and model tokens a question, and how often it chose each mode."""

    name: str
    recall: float
    milliseconds: float
    tokens: float
    chosen: Mapping[str, int]


@dataclass(frozen=True)
class RouterRecord:
    """How a router came to be. `data` gives the fingerprint of each dataset by its folder's name; `points` are of the splits named.

    `unseen` are points over train and dev, each question predicted from others: what prices and margin were chosen by. `learned_from`
    are the fingerprints of those questions, so that an evaluation on one of them can be refused.
    """

    data: Mapping[str, str]
    encoder: str
    features: tuple[str, ...]
    settings: Mapping[str, Any]
    questions: Mapping[str, int]
    modes: tuple[str, ...]
    default: str
    price_per_ms: float
    price_per_token: float
    margin: float
    unseen: tuple[Point, ...]
    test: tuple[Point, ...]
    train_seconds: float
    versions: Mapping[str, str]
    learned_from: tuple[str, ...]
