"""A trained selector at query time: how likely it is that a proposition helps to answer a question. No model is called.

`modegraph train selector` writes the file with `save_selector`; it holds boosted trees over FEATURES (graph/retrieve/features.py)
as plain arrays, and what it was trained for in the header. Nothing in it is code.

Legend: n propositions, F features, T trees, V nodes of all trees end to end.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from graph.encoder import find_model
from graph.errors import UserError
from graph.index import Index
from graph.retrieve.features import FEATURES
from graph.types import Floats, Ints

SELECTOR_FILE = "selector.safetensors"
FORMAT = "modegraph selector, light, 1"
HEADER = "selector"
"""The one key of the file's metadata; its value is JSON, so that equal selectors are equal bytes."""
MAX_DEPTH = 64
FOREST_ARRAYS = ("feature_V", "threshold_V", "left_V", "right_V", "value_V", "root_T")


@dataclass(frozen=True)
class Forest:
    """Boosted trees. From node v an example goes on to left_V[v] where its feature feature_V[v] is at most threshold_V[v], and to
    right_V[v] elsewhere; a leaf leads to itself. `depth` is the number of steps of the longest way down.
    """

    feature_V: NDArray[np.int64]
    threshold_V: NDArray[np.float64]
    left_V: NDArray[np.int64]
    right_V: NDArray[np.int64]
    value_V: NDArray[np.float64]
    root_T: NDArray[np.int64]
    base: float
    depth: int


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


def forest_logits(forest: Forest, features_nF: Floats) -> NDArray[np.float64]:
    """base + Σ_T the value of the leaf that each example comes to: [n]."""
    node_nT = np.tile(forest.root_T, (len(features_nF), 1))
    row_n1 = np.arange(len(features_nF))[:, None]
    for _ in range(forest.depth):
        lower_nT = features_nF[row_n1, forest.feature_V[node_nT]] <= forest.threshold_V[node_nT]
        node_nT = np.where(lower_nT, forest.left_V[node_nT], forest.right_V[node_nT])
    return np.asarray(forest.base + forest.value_V[node_nT].sum(axis=1))


def forest_arrays(forest: Forest) -> dict[str, NDArray[Any]]:
    """A forest's arrays by name, as a file holds them; its base and depth are numbers for the header."""
    return {name: getattr(forest, name) for name in FOREST_ARRAYS}


def forest_of(arrays: Mapping[str, NDArray[Any]], base: float, depth: int, features: int) -> Forest:
    """The inverse of `forest_arrays`; ValueError unless every step from every node leads to a node, and every feature is one."""
    forest = Forest(**arrays, base=base, depth=depth)
    nodes = len(forest.value_V)
    limits = {"feature_V": features, "left_V": nodes, "right_V": nodes, "root_T": nodes}
    for name, limit in limits.items():
        column: Ints = arrays[name]
        if column.ndim != 1 or column.dtype != np.int64 or not len(column) or column.min() < 0 or column.max() >= limit:
            raise ValueError(f"{name} points outside")
    per_node = (forest.feature_V, forest.threshold_V, forest.left_V, forest.right_V)
    if any(column.shape != (nodes,) for column in per_node) or not 0 <= depth <= MAX_DEPTH:
        raise ValueError("columns of different lengths, or trees without end")
    return forest


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
    forest = classifier.forest
    header = {
        "format": FORMAT,
        "features": FEATURES,
        "encoder": classifier.encoder,
        "base": forest.base,
        "depth": forest.depth,
        "temperature": classifier.temperature,
        "threshold": classifier.threshold,
    }
    save_file(forest_arrays(forest), folder / SELECTOR_FILE, {HEADER: json.dumps(header)})


def open_selector(spec: str) -> Classifier:
    """The selector in a folder or on the hub, read once as long as its file stays the same; UserError for anything else."""
    file = find_model(spec, "selector") / SELECTOR_FILE
    if not file.is_file():
        raise UserError(
            f"selector {spec!r}: no {SELECTOR_FILE}", "the folder that `modegraph train selector` made", "name another"
        )
    return _load(file, file.stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _load(file: Path, changed_ns: int) -> Classifier:
    del changed_ns
    try:
        with safe_open(file, framework="numpy") as opened:
            header = json.loads((opened.metadata() or {})[HEADER])
            check_header(file, header, FORMAT, FEATURES)
            arrays = {name: opened.get_tensor(name) for name in FOREST_ARRAYS}
        forest = forest_of(arrays, float(header["base"]), int(header["depth"]), len(FEATURES))
        return Classifier(forest, float(header["temperature"]), float(header["threshold"]), str(header["encoder"]))
    except (SafetensorError, KeyError, TypeError, AttributeError, ValueError) as problem:
        raise UserError(f"{file}: no selector ({problem})", "the file as it was saved", "train it again") from None


def check_header(file: Path, header: Mapping[str, Any], form: str, features: Sequence[str]) -> None:
    """UserError for a file of another kind than `form`, and for one that reads other features than this version makes."""
    if header.get("format") != form:
        raise UserError(f"{file}: its format is {header.get('format')!r}", repr(form), "name another folder")
    reads = header["features"]
    if tuple(reads) != tuple(features):
        other = [f"without {name!r}" for name in features if name not in reads]
        other += [f"with {name!r}" for name in reads if name not in features] or ["in another order"] * (not other)
        raise UserError(
            f"{file}: trained on other features ({', '.join(other)})",
            f"the {len(features)} features of this version",
            "make its data again and train on it",
        )
