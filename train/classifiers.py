"""Functions that the classifiers (selector, hop selector, verifier) share.

* Reading folders of labelled rows, one file per split, and checking that no two splits overlap and that datasets share an encoder.
* Gradient-boosted trees (scikit-learn's histogram trees), with early stopping on dev, and their conversion to the plain arrays of a `Forest`.
* From logits to decisions: the temperature that calibrates the probabilities on dev, the threshold for a target recall, the reliability plot.

Legend: n examples, F features, T trees, V nodes of all trees, concatenated; B bins.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from sklearn.ensemble import HistGradientBoostingClassifier

from data_synth.dataset.write import markdown_table
from data_synth.rows import MALFORMED, Row, split_files
from graph.errors import UserError
from graph.shared.ids import checksum, content_id
from graph.shared.jsonl import read_jsonl
from graph.trees import Forest, forest_logits, probabilities
from graph.types import Floats, Ints
from train.run.record import versions_section
from train.run.settings import SelectorSettings, VerifierSettings

R = TypeVar("R", bound=Row)

MAX_NAMED = 5
"""Maximum number of ids in an error about overlapping splits."""


def read_labelled(
    folder: Path, parse: Callable[[Mapping[str, Any], str], R], problems_of: Callable[[R], Sequence[str]], expected: str
) -> tuple[dict[str, list[R]], str]:
    """The rows of each split in the folder, and the folder's fingerprint. `parse` gets a row's values and its place (file and line).

    UserError names the place of the first row that is malformed, has a problem or is in the file of another split; `expected` describes a valid row.
    """
    files = split_files(folder)
    rows: dict[str, list[R]] = {file.stem: [] for file in files}
    remedy = "make the data again"
    for file in files:
        for number, values in read_jsonl(file):
            where = f"{file} line {number}"
            try:
                row = parse(values, where)
                problems = list(problems_of(row))
            except MALFORMED as problem:
                raise UserError(f"{where}: {type(problem).__name__}: {problem}", expected, remedy) from None
            if row.split != file.stem:
                problems.append(f"split is {row.split!r}, expected {file.stem!r}")
            if problems:
                raise UserError(f"{where}: {problems[0]}", expected, remedy)
            rows[file.stem].append(row)
    return rows, content_id(*map(checksum, files))


def check_apart(kind: str, ids: Mapping[str, Mapping[Any, str]], expected: str, remedy: str) -> None:
    """UserError for keys in two splits, with their number and up to MAX_NAMED ids.

    `kind` names what a key stands for, such as "passage"; `ids` maps the keys of each split to ids.
    """
    for first, second in (("train", "dev"), ("train", "test"), ("dev", "test")):
        if shared := sorted(ids[second][key] for key in ids[first].keys() & ids[second].keys()):
            listed = ", ".join(shared[:MAX_NAMED]) + (", …" if len(shared) > MAX_NAMED else "")
            raise UserError(f"{len(shared):,} {kind}s in both {first} and {second}: {listed}", expected, remedy)


def check_both_classes(where: str, label: str, labelled: Sequence[bool], remedy: str) -> None:
    """UserError unless some rows have the label `label` and others do not."""
    if not 0 < sum(labelled) < len(labelled):
        found = f"{where}: {sum(labelled):,} of {len(labelled):,} rows are {label}"
        raise UserError(found, "both classes in every split", remedy)


def distinct_names(folders: Sequence[Path]) -> list[str]:
    """The name of each folder; if two have the same name, their paths from the folder that contains them all.

    >>> distinct_names([Path("/runs/a"), Path("/runs/b")]), distinct_names([Path("/runs/a/index"), Path("/runs/b/index")])
    (['a', 'b'], ['a/index', 'b/index'])
    """
    paths = [folder.resolve() for folder in folders]
    names = [path.name for path in paths]
    if len(set(names)) == len(names):
        return names
    above = os.path.commonpath([path.parent for path in paths])
    return [path.relative_to(above).as_posix() for path in paths]


def check_one_encoder(sources: str, encoders: Mapping[str, str]) -> None:
    """UserError for several encoders.

    `encoders` maps the fingerprint of each encoder to the name of a source that uses it; `sources` is the word for such sources, such as "indexes".
    """
    if len(encoders) > 1:
        listed = ", ".join(f"{name} with {encoder[:12]}" for encoder, name in encoders.items())
        raise UserError(f"{sources} of several encoders ({listed})", "one encoder", "make them with one encoder")


class Examples(Protocol):
    """Labelled examples: float32[n, F] and int64[n] of zeros and ones."""

    @property
    def features_nF(self) -> Floats: ...
    @property
    def label_n(self) -> Ints: ...


def fit_trees(
    train: Examples, dev: Examples, settings: SelectorSettings | VerifierSettings, positive_weight: float = 1.0
) -> HistGradientBoostingClassifier:
    """Trees fitted on `train` by log loss, until the loss on `dev` has not fallen for `patience_trees` trees; both losses use `weights`."""
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


def fit_forest(
    train: Examples, dev: Examples, settings: SelectorSettings | VerifierSettings, positive_weight: float = 1.0
) -> Forest:
    """The trees of `fit_trees` up to the lowest loss on dev."""
    trees = fit_trees(train, dev, settings, positive_weight)
    return to_forest(trees, best_count(trees), positive_weight)


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


Doubles = NDArray[np.float64]
TEMPERATURES = (0.05, 20.0)
EDGES_B = np.array([0.0, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
"""The edges of the bins, which are narrow near 0: most of a selector's probabilities are there, because only one example in forty is relevant."""


@dataclass(frozen=True)
class Bin:
    """A row of the reliability table: the examples with a probability between `low` and `high`."""

    low: float
    high: float
    examples: int
    mean_probability: float
    share_relevant: float


def log_loss(logits_n: Doubles, label_n: Ints, temperature: float) -> float:
    """−mean ln p(label) with p = σ(z / T), in nats per example."""
    signed_n = np.where(label_n == 1, 1.0, -1.0) * logits_n / temperature
    return float(np.logaddexp(0, -signed_n).mean())


def fit_temperature(logits_n: Doubles, label_n: Ints) -> float:
    """The temperature with the lowest log loss (Guo et al. 2017, §4.2)."""
    low, high = np.log(TEMPERATURES)
    optimum = minimize_scalar(
        lambda log_t: log_loss(logits_n, label_n, float(np.exp(log_t))), bounds=(low, high), method="bounded"
    )
    return float(np.exp(optimum.x))


def calibrate(forest: Forest, dev: Examples) -> tuple[float, Doubles]:
    """The temperature fitted on dev, and the probabilities of dev at this temperature."""
    logits_n = forest_logits(forest, dev.features_nF)
    temperature = fit_temperature(logits_n, dev.label_n)
    return temperature, probabilities(logits_n, temperature)


def threshold_for(probability_n: Doubles, label_n: Ints, target_recall: float) -> float:
    """The highest threshold that at least `target_recall` of the relevant examples reach.

    >>> threshold_for(np.array([0.9, 0.6, 0.4, 0.2]), np.array([1, 0, 1, 1]), 0.6)
    0.4
    """
    relevant = np.sort(probability_n[label_n == 1])[::-1]
    return float(relevant[count_of(target_recall, len(relevant)) - 1])


def count_of(share: float, total: int) -> int:
    """The smallest integer that is at least a `share` of `total`, and at least 1; a product that exceeds an integer only by rounding counts as that integer.

    >>> count_of(0.5, 3), count_of(1 - 0.42, 100), count_of(0.0, 3)
    (2, 58, 1)
    """
    return max(math.ceil(share * total - 1e-9), 1)


def reliability(probability_n: Doubles, label_n: Ints) -> tuple[Bin, ...]:
    """The non-empty bins: mean probability and share of relevant examples."""
    bin_n = np.clip(np.searchsorted(EDGES_B, probability_n, side="right") - 1, 0, len(EDGES_B) - 2)
    rows = []
    for number in np.unique(bin_n).tolist():
        in_bin_n = bin_n == number
        means = float(probability_n[in_bin_n].mean()), float(label_n[in_bin_n].mean())
        rows.append(Bin(float(EDGES_B[number]), float(EDGES_B[number + 1]), int(in_bin_n.sum()), *means))
    return tuple(rows)


def reliability_table(bins: Sequence[Bin], items: str, label: str) -> str:
    """The bins in Markdown: for each, the number of `items`, their mean probability, and the share of `label` among them."""
    rows = [
        (f"{b.low:g} to {b.high:g}", f"{b.examples:,}", f"{b.mean_probability:.3f}", f"{b.share_relevant:.3f}")
        for b in bins
    ]
    return markdown_table(("probability", items, "mean probability", f"share {label}"), rows)


def calibration_error(bins: tuple[Bin, ...]) -> float:
    """Expected calibration error (Guo et al. 2017, Eq. 3): Σ_B |B| / n · |share relevant − mean probability|."""
    examples = sum(each.examples for each in bins)
    return sum(each.examples * abs(each.share_relevant - each.mean_probability) for each in bins) / examples


def threshold_figures(probability_n: Doubles, label_n: Ints, threshold: float) -> dict[str, float]:
    """Recall and precision of the examples that reach the threshold, and their share of all examples."""
    selected_n = probability_n >= threshold
    relevant = float(label_n[selected_n].sum())
    return {
        "recall": relevant / float(label_n.sum()),
        "precision": relevant / max(float(selected_n.sum()), 1.0),
        "selected": float(selected_n.mean()),
    }


def standard_error(values_n: Doubles) -> float:
    """The standard error of the mean; 0 for a single value."""
    return float(values_n.std(ddof=1) / np.sqrt(len(values_n))) if len(values_n) > 1 else 0.0


def closing_sections(features: Sequence[str], use: str, versions: Mapping[str, str]) -> list[str]:
    """The last sections of a model card: features, use, versions."""
    return ["## Features\n\n" + ", ".join(f"`{name}`" for name in features) + ".", use, versions_section(versions)]


COLOUR = "#2b7bba"


def draw_reliability(bins: Sequence[Bin], file: Path, items: str, label: str) -> None:
    """Write a PNG: above, the share of `label` among the `items` of each bin against its mean probability; below, their number."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0, 6.4), layout="constrained")
    above, below = figure.subplots(2, 1, height_ratios=(3, 1), sharex=True)
    means = [each.mean_probability for each in bins]
    above.plot([0, 1], [0, 1], "--", color="grey", linewidth=1, label="perfectly calibrated")
    above.plot(means, [each.share_relevant for each in bins], "o-", color=COLOUR, label="test")
    above.set_ylabel(f"share {label}")
    above.legend(frameon=False)
    widths = [each.high - each.low for each in bins]
    below.bar([each.low for each in bins], [each.examples for each in bins], widths, align="edge", color=COLOUR)
    below.set_yscale("log")
    below.set_ylabel(items)
    below.set_xlabel(f"probability of being {label}")
    for axes in (above, below):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=150, facecolor="white")
