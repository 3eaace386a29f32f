"""From logits to decisions: the temperature that calibrates the probabilities on dev, the threshold for a target recall, and the reliability plot.

Legend: n examples, B bins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from data_synth.dataset.write import markdown_table
from graph.types import Ints

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


def threshold_for(probability_n: Doubles, label_n: Ints, target_recall: float) -> float:
    """The highest threshold that at least `target_recall` of the relevant examples reach.

    >>> threshold_for(np.array([0.9, 0.6, 0.4, 0.2]), np.array([1, 0, 1, 1]), 0.6)
    0.4
    """
    relevant = np.sort(probability_n[label_n == 1])[::-1]
    count = int(np.ceil(target_recall * len(relevant) - 1e-9))
    return float(relevant[max(count, 1) - 1])


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
