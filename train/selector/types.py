"""The nouns of selector training: examples as arrays, and what a finished run tells of itself.

Legend: n examples (a question and a proposition each), F features, B bins of probability.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graph.retrieve.learned.classifier import probabilities
from graph.shared.types import Floats, Ints
from train.shared.calibrate import Bin

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Examples:
    """One split. `question_n` numbers the questions; `own_n` marks propositions of the passages that a question was published with."""

    features_nF: Floats
    label_n: Ints
    question_n: Ints
    own_n: NDArray[np.bool_]
    dataset_n: Ints


HELD_OUT = ("dev", "test")


@dataclass(frozen=True)
class Verdicts:
    """What a finished selector says of the examples of HELD_OUT: log odds, with the temperature in them."""

    temperature: float
    threshold: float
    log_odds: Mapping[str, Doubles]

    def probability(self, split: str) -> Doubles:
        """The probability of each example to be relevant: [n]."""
        return probabilities(self.log_odds[split], 1.0)


@dataclass(frozen=True)
class Ranked:
    """Mean average precision over the questions of a dataset, each over the propositions of its own passages.

    `standard_error` is that of the mean difference between the selector and the cosine.
    """

    dataset: str
    split: str
    questions: int
    selector: float
    cosine: float
    standard_error: float


@dataclass(frozen=True)
class CrossRecord:
    """How the cross-encoder of a cross selector came to be: pairs learned from, the step that was best on dev, the blend of logits.

    `light_ranked` is what the light selector that it reads after ranks by itself.
    """

    start: str
    pairs: int
    best_step: int
    weight: float
    base: float
    depth: int
    light_ranked: tuple[Ranked, ...]


@dataclass(frozen=True)
class SelectorRecord:
    """How a selector came to be, and its figures. `data` gives the fingerprint of each dataset by its folder's name;
    `sharing_passages` names those whose splits share passages, though no question.

    `trees` are those of the light selector, which a cross selector has too; `cross` is None for a light one. `processor_seconds` are
    those of all cores.
    """

    size: str
    data: Mapping[str, str]
    sharing_passages: tuple[str, ...]
    encoder: str
    features: tuple[str, ...]
    settings: Mapping[str, Any]
    examples: Mapping[str, int]
    trees: int
    temperature: float
    threshold: float
    ranked: tuple[Ranked, ...]
    figures: Mapping[str, float]
    reliability: tuple[Bin, ...]
    train_seconds: float
    processor_seconds: float
    versions: Mapping[str, str]
    cross: CrossRecord | None = None
