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
from graph.retrieve.learned.forest import Forest, forest_from, forest_logits, read_forests, save_forest, trained_file
from graph.shared.errors import UserError
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


def probabilities(logits_n: NDArray[np.float64], temperature: float) -> NDArray[np.float64]:
    """1 / (1 + exp(−z / T)) (temperature scaling, Guo et al. 2017, for two classes): [n].

    >>> probabilities(np.array([0.0, np.log(9)]), 1.0).round(2).tolist()
    [0.5, 0.9]
    """
    scaled_n = logits_n / temperature
    return np.asarray(np.exp(-np.logaddexp(0, -scaled_n)))


def relevance(classifier: Classifier, features_nF: Floats) -> NDArray[np.float64]:
    """The probability of each proposition, given its FEATURES, to be relevant: [n]."""
    return probabilities(forest_logits(classifier.forest, features_nF), classifier.temperature)


def check_same_encoder(classifier: Classifier, index: Index) -> None:
    """UserError when the index has another encoder than the one whose cosines the selector learned from."""
    check_encoder("selector", classifier.encoder, index, "`modegraph synth relevance`")


def check_encoder(what: str, encoder: str, index: Index, data: str) -> None:
    """UserError when the index has another encoder than the one that `what` was trained with, on what `data` makes."""
    own = index.encoder_source.fingerprint
    if encoder != own:
        raise UserError(
            f"the {what} was trained with encoder {encoder[:12]}, {index.folder} has {own[:12]}",
            f"a {what} for the encoder of the index",
            f"train one on {data} of an index with this encoder, or leave out --{what}",
        )


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
