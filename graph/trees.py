"""Boosted trees of trained selectors and verifiers: prediction and file format.

The file is safetensors: the trees as plain arrays, everything else as JSON under one key of the header. It contains no code.

Legend: n examples, F features, T trees, V nodes of all trees end to end."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from graph.errors import UserError
from graph.models.encoder import find_model
from graph.types import Floats, Ints

if TYPE_CHECKING:
    from graph.index.index import Index

MAX_DEPTH = 64
FOREST_ARRAYS = ("feature_V", "threshold_V", "left_V", "right_V", "value_V", "root_T")


@dataclass(frozen=True)
class Forest:
    """Boosted trees. From node v an example goes to left_V[v] if its feature feature_V[v] is at most threshold_V[v], else to right_V[v];
    a leaf leads to itself. `depth` is the number of steps of the longest path.
    """

    feature_V: NDArray[np.int64]
    threshold_V: NDArray[np.float64]
    left_V: NDArray[np.int64]
    right_V: NDArray[np.int64]
    value_V: NDArray[np.float64]
    root_T: NDArray[np.int64]
    base: float
    depth: int


def forest_logits(forest: Forest, features_nF: Floats) -> NDArray[np.float64]:
    """base + Σ_T (the value of the leaf that each example reaches): [n]. Indexing flat arrays takes half as long as indexing two-dimensional ones."""
    count, features = features_nF.shape
    values, row_n1 = features_nF.ravel(), features * np.arange(count)[:, None]
    next_2V = np.stack([forest.left_V, forest.right_V], axis=1).ravel()
    node_nT = np.tile(forest.root_T, (count, 1))
    for _ in range(forest.depth):
        value_nT = values.take(row_n1 + forest.feature_V.take(node_nT))
        node_nT = next_2V.take(2 * node_nT + ~(value_nT <= forest.threshold_V.take(node_nT)))
    return np.asarray(forest.base + forest.value_V.take(node_nT).sum(axis=1))


def save_forest(
    file: Path, key: str, facts: Mapping[str, Any], forest: Forest, further: Mapping[str, NDArray[Any]] | None = None
) -> None:
    """Write a file with one forest: its arrays, the `further` arrays and, under `key` in the header, the facts and the forest's base and depth."""
    header = {**facts, "base": forest.base, "depth": forest.depth}
    arrays = {name: getattr(forest, name) for name in FOREST_ARRAYS}
    save_file({**arrays, **(further or {})}, file, {key: json.dumps(header)})


def trained_file(spec: str, what: str, name: str) -> Path:
    """The file `name` of a model folder or hub model made by `modegraph train WHAT`; UserError if there is none."""
    file = find_model(spec, what) / name
    if not file.is_file():
        expected = f"the folder that `modegraph train {what}` made"
        raise UserError(f"{what} {spec!r}: no {name}", expected, "name another folder")
    return file


@contextmanager
def read_forest(
    file: Path, what: str, form: str, features: Sequence[str]
) -> Iterator[tuple[Forest, dict[str, Any], Any]]:
    """Open the file of a trained `what` in format `form`: its forest, its header, and the file itself for further arrays; UserError if it is invalid."""
    try:
        with safe_open(file, framework="numpy") as opened:
            header = json.loads((opened.metadata() or {})[what])
            check_header(file, header, form, features)
            yield _forest_in(opened, header, len(features)), header, opened
    except (SafetensorError, KeyError, TypeError, AttributeError, ValueError) as problem:
        raise UserError(f"{file}: not a {what} file ({problem})", "an unchanged file", "train it again") from None


def _forest_in(opened: Any, header: Mapping[str, Any], features: int) -> Forest:
    """The forest from the arrays of an opened file, with base and depth from its header; ValueError if an index of a node or feature, or
    the depth, is out of range, or columns differ in length.
    """
    arrays: dict[str, NDArray[Any]] = {name: opened.get_tensor(name) for name in FOREST_ARRAYS}
    forest = Forest(**arrays, base=float(header["base"]), depth=int(header["depth"]))
    nodes = len(forest.value_V)
    limits = {"feature_V": features, "left_V": nodes, "right_V": nodes, "root_T": nodes}
    for name, limit in limits.items():
        column: Ints = arrays[name]
        if column.ndim != 1 or column.dtype != np.int64 or not len(column) or column.min() < 0 or column.max() >= limit:
            raise ValueError(f"{name} is not a list of indices below {limit}")
    per_node = (forest.feature_V, forest.threshold_V, forest.left_V, forest.right_V)
    if any(column.shape != (nodes,) for column in per_node) or not 0 <= forest.depth <= MAX_DEPTH:
        raise ValueError(f"columns of different lengths, or a depth ({forest.depth}) outside 0 to {MAX_DEPTH}")
    return forest


def check_header(file: Path, header: Mapping[str, Any], form: str, features: Sequence[str]) -> None:
    """UserError for a file in a format other than `form`, or trained on features other than this version's."""
    remedy = "train it again with this version, or name another folder"
    if header.get("format") != form:
        raise UserError(f"{file}: its format is {header.get('format')!r}", repr(form), remedy)
    trained_on = header["features"]
    if tuple(trained_on) != tuple(features):
        other = [f"without {name!r}" for name in features if name not in trained_on]
        other += [f"with {name!r}" for name in trained_on if name not in features]
        found = f"{file}: trained on other features ({', '.join(other) or 'in another order'})"
        expected = f"the {len(features)} features of this version"
        raise UserError(found, expected, remedy)


def probabilities(logits_n: NDArray[np.float64], temperature: float) -> NDArray[np.float64]:
    """1 / (1 + exp(−z / T)) (temperature scaling, Guo et al. 2017, for two classes): [n].

    >>> probabilities(np.array([0.0, np.log(9)]), 1.0).round(2).tolist()
    [0.5, 0.9]
    """
    scaled_n = logits_n / temperature
    return np.asarray(np.exp(-np.logaddexp(0, -scaled_n)))


def check_encoder(what: str, encoder: str, index: Index, data: str) -> None:
    """UserError when the encoder of the index is not the one that `what` was trained with; `data` is the kind of training data, for the message."""
    fingerprint = index.encoder_source.fingerprint
    if encoder != fingerprint:
        raise UserError(
            f"the {what} was trained with encoder {encoder[:12]}, but {index.folder} has {fingerprint[:12]}",
            f"a {what} for the encoder of the index",
            f"train one on {data} for an index with encoder {fingerprint[:12]}, or leave out --{what}",
        )
