"""The frontier of a router: Recall@5 against milliseconds."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from eval.compare.figures import save_figure
from eval.router.measure import ORACLE, ROUTER, RULE
from eval.router.types import RouterReport

COLOURS = {ROUTER: "#c03028", RULE: "#7a4fa3", ORACLE: "#4a4a4a"}
MARKS = {ROUTER: "*", RULE: "D", ORACLE: "^"}
MODE_COLOUR = "#2b7bba"


def draw_frontier(report: RouterReport, file: Path) -> None:
    """Write a PNG: single modes, rule, router and oracle as points; the line is the router at every price."""
    figure = Figure(figsize=(8.0, 5.0), layout="constrained")
    axes = figure.subplots()
    axes.plot(
        *zip(*report.curve, strict=True), color=COLOURS[ROUTER], linewidth=1.2, alpha=0.7, label="router, every price"
    )
    for point in report.points:
        colour, mark = COLOURS.get(point.name, MODE_COLOUR), MARKS.get(point.name, "o")
        axes.plot([point.milliseconds], [point.recall], mark, color=colour, markersize=12 if mark == "*" else 7)
        label = axes.annotate(
            point.name, (point.milliseconds, point.recall), (7, 5), textcoords="offset points", color=colour, fontsize=9
        )
        label.set_path_effects([withStroke(linewidth=3, foreground="white")])
    axes.set_xscale("log")
    axes.set_xlabel("milliseconds a question without the encoder (mean of typical times, log scale)")
    axes.set_ylabel("Recall@5 (mean)")
    axes.set_title(f"{report.questions:,} held-out questions of {', '.join(report.data)}", fontsize=10)
    axes.legend(frameon=False, loc="lower right")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    save_figure(figure, file)
