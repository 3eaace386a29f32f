"""A trained selector at query time: how likely it is that a proposition helps to answer a question. No model is called.

`modegraph train selector` writes the file with `save_selector`; it holds boosted trees over FEATURES (graph/retrieve/learned/features.py)
as plain arrays, and what it was trained for in the header. Nothing in it is code.

Legend: n propositions, F features.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from graph.index.index import Index
from graph.retrieve.learned.features import FEATURES
from graph.retrieve.learned.forest import (
    Forest,
    check_encoder,
    forest_from,
    forest_logits,
    probabilities,
    read_forests,
    save_forest,
    trained_file,
)
from graph.shared.types import Floats

SELECTOR_FILE = "selector.safetensors"
FORMAT = "modegraph selector, light, 2"
HEADER = "selector"
"""The one key of the file's metadata; its value is JSON, so that equal selectors are equal bytes."""


@dataclass(frozen=True)
class Classifier:
    """A forest of logits, what makes probabilities of them, and the encoder whose cosines it has learned from.

    A proposition is relevant where its probability reaches `threshold`.
    """

    forest: Forest
    temperature: float
    threshold: float
    encoder: str


def relevance(classifier: Classifier, features_nF: Floats) -> NDArray[np.float64]:
    """The probability of each proposition, given its FEATURES, to be relevant: [n]."""
    return probabilities(forest_logits(classifier.forest, features_nF), classifier.temperature)


def check_same_encoder(classifier: Classifier, index: Index) -> None:
    """UserError when the index has another encoder than the one whose cosines the selector learned from."""
    check_encoder("selector", classifier.encoder, index, "`modegraph synth relevance`")


def save_selector(folder: Path, classifier: Classifier) -> None:
    """Write SELECTOR_FILE into `folder`."""
    facts = {
        "format": FORMAT,
        "features": FEATURES,
        "encoder": classifier.encoder,
        "temperature": classifier.temperature,
        "threshold": classifier.threshold,
    }
    save_forest(folder / SELECTOR_FILE, HEADER, facts, classifier.forest)


def open_selector(spec: str) -> Classifier:
    """The selector in a folder or on the hub, read once as long as its file stays the same; UserError for anything else."""
    file = trained_file(spec, "selector", SELECTOR_FILE)
    return _load(file, file.stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _load(file: Path, changed_ns: int) -> Classifier:
    del changed_ns
    with read_forests(file, HEADER, FORMAT, FEATURES) as (opened, header):
        forest = forest_from(opened, "", header, len(FEATURES))
        return Classifier(forest, float(header["temperature"]), float(header["threshold"]), str(header["encoder"]))
