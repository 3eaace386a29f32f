"""The reliability plot: how often what is judged is so, beside the probability that it was given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from train.shared.calibrate import Bin

COLOUR = "#2b7bba"


def draw_reliability(bins: Sequence[Bin], file: Path, judged: str, as_what: str) -> None:
    """Write a PNG: above, the share of the `judged` that are `as_what` in each bin against its mean probability; below, how many it holds."""
    figure = Figure(figsize=(6.0, 6.4), layout="constrained")
    above, below = figure.subplots(2, 1, height_ratios=(3, 1), sharex=True)
    means = [each.mean_probability for each in bins]
    above.plot([0, 1], [0, 1], "--", color="grey", linewidth=1, label="as probable as it says")
    above.plot(means, [each.share_relevant for each in bins], "o-", color=COLOUR, label="test")
    above.set_ylabel(f"share {as_what}")
    above.legend(frameon=False)
    widths = [each.high - each.low for each in bins]
    below.bar([each.low for each in bins], [each.examples for each in bins], widths, align="edge", color=COLOUR)
    below.set_yscale("log")
    below.set_ylabel(judged)
    below.set_xlabel(f"probability of being {as_what}")
    for axes in (above, below):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=150, facecolor="white")
