"""Plots: log π(y|x) of a comparison as box plots (GraphMPA's Figure 6, with the rejected side), quality of retrieval against time, and saving of figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke

from eval.comparison import Measure, PairScore
from eval.statistics import bootstrap_mean
from graph.shared.jsonl import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CHOSEN_COLOUR, REJECTED_COLOUR = "#0072b2", "#d55e00"
BOX_WIDTH, OFFSET = 0.34, 0.2


def draw_logps(scores: Mapping[str, Sequence[PairScore]], title: str, file: Path) -> None:
    """Write a PNG from each policy's scores: for each policy one box for the chosen and one for the rejected sides, as sums (left) and per token (right)."""
    figure = Figure(figsize=(max(8.0, 2.6 + 1.8 * len(scores)), 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    sums = {name: [(one.chosen_logp, one.rejected_logp) for one in pairs] for name, pairs in scores.items()}
    per_token = {
        name: [(one.chosen_logp / one.chosen_tokens, one.rejected_logp / one.rejected_tokens) for one in pairs]
        for name, pairs in scores.items()
    }
    _draw_boxes(left, sums, "log π(y|x), summed (nats)")
    _draw_boxes(right, per_token, "log π(y|x) / |y| (nats per token)")
    handles = [Patch(color=CHOSEN_COLOUR, label="chosen y_w"), Patch(color=REJECTED_COLOUR, label="rejected y_l")]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    figure.suptitle(title, fontsize=11)
    save_figure(figure, file)


def draw_retrieval(seconds: Measure, quality: Measure, file: Path) -> None:
    """Write a PNG: each mode or selector at its mean seconds (log scale) and mean quality, with 95 % bootstrap intervals of both means."""
    figure = Figure(figsize=(8.0, 5.0), layout="constrained")
    axes = figure.subplots()
    for mode in quality.values:
        x, y = (bootstrap_mean(measure.values[mode], measure.clusters) for measure in (seconds, quality))
        whiskers = [[[interval.mean - interval.low], [interval.high - interval.mean]] for interval in (x, y)]
        bars = axes.errorbar([x.mean], [y.mean], xerr=whiskers[0], yerr=whiskers[1], fmt="o", capsize=3, label=mode)
        colour = bars.lines[0].get_color()
        label = axes.annotate(mode, (x.mean, y.mean), (6, 6), textcoords="offset points", color=colour, fontsize=9)
        label.set_path_effects([withStroke(linewidth=3, foreground="white")])
    axes.set_xscale("log")
    axes.set_xlabel(f"{seconds.name} (mean, log scale)")
    axes.set_ylabel(f"{quality.name} (mean)")
    axes.set_title(f"{len(quality.clusters):,} questions; whiskers: 95 % bootstrap intervals of the means", fontsize=10)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    save_figure(figure, file)


def save_figure(figure: Figure, file: Path) -> None:
    """Write the PNG to a temporary file next to `file`, then rename it into place."""
    with replacing(file) as partial:
        partial.write_bytes(figure_png(figure))


def figure_png(figure: Figure) -> bytes:
    """The figure as the bytes of a PNG."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=150, facecolor="white")
    return buffer.getvalue()


def _draw_boxes(axes: Axes, values: Mapping[str, Sequence[tuple[float, float]]], label: str) -> None:
    names = list(values)
    for side, (offset, colour) in enumerate(((-OFFSET, CHOSEN_COLOUR), (OFFSET, REJECTED_COLOUR))):
        boxes = axes.boxplot(
            [[pair[side] for pair in pairs] for pairs in values.values()],
            positions=[index + offset for index in range(len(names))],
            widths=BOX_WIDTH,
            patch_artist=True,
            manage_ticks=False,
            medianprops={"color": "black"},
            flierprops={"marker": ".", "markersize": 3, "markeredgecolor": colour},
        )
        for box in boxes["boxes"]:
            box.set(facecolor=colour, alpha=0.75)
    long_names = max(len(name) for name in names) > 10
    axes.set_xticks(range(len(names)), names, rotation=30 if long_names else 0, ha="right" if long_names else "center")
    axes.set_ylabel(label)
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
