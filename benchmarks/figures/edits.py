"""docs/figures/edits: processor seconds for editing, building and opening an index, by its size, from a table of docs/results.md."""

from matplotlib.figure import Figure

from benchmarks.figures.style import BLUE, GREEN, GREY, ORANGE, number, style_axes, table

SERIES = (
    ("build", "build from scratch", GREY, "s"),
    ("add", "one document added,\ncommunities recomputed", BLUE, "o"),
    ("add, later", "one document added", ORANGE, "D"),
    ("open", "opening the index", GREEN, "^"),
)
"""Column, label, colour and marker."""


def draw() -> Figure:
    """One line per series, both axes logarithmic."""
    rows = table("| passages | build")
    passages = [number(row["passages"]) for row in rows]
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axes = figure.subplots()
    for column, label, colour, marker in SERIES:
        seconds = [number(row[column]) for row in rows]
        axes.plot(passages, seconds, marker=marker, color=colour, ms=6)
        axes.annotate(label, (passages[-1], seconds[-1]), (8, -3), textcoords="offset points", color=colour, fontsize=9)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("passages in the index")
    axes.set_ylabel("processor time (s)")
    axes.set_xticks(passages, [f"{count:,.0f}" for count in passages])
    axes.minorticks_off()
    axes.margins(x=0.04)
    style_axes(axes)
    # Space for the labels to the right of the last points.
    axes.set_xlim(right=passages[-1] * 12)
    return figure
