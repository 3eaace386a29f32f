"""docs/figures/study and frontiers: MS, DPO and IPO on SmolLM2-135M-Instruct, from two tables of docs/results.md."""

from itertools import groupby

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.figures.style import BLUE, GREEN, GREY, ORANGE, PINK, SKY, Row, number, style_axes, table

STYLES = {
    ("DPO", "2"): (BLUE, "o", "-"),
    ("MS", "2"): (ORANGE, "s", "-"),
    ("MS", "8"): (PINK, "v", ":"),
    ("MS", "64 (55)"): (GREEN, "D", "--"),
    ("DPO", "64 (55)"): (SKY, "^", "--"),
    ("DPO", "8"): (SKY, "v", ":"),
    ("DPO, paper's pairs", "2"): (GREY, "o", ":"),
    ("IPO, paper's pairs", "2"): (GREY, "P", ":"),
}
"""Colour, marker and line style of a run by its objective and K."""


def draw_runs() -> Figure:
    """Reward against KL to the reference: one line per seed, from the reference to the end of its run."""
    reference, *runs = table("| run | K | seed |")
    figure = Figure(figsize=(7.5, 4.6), layout="constrained")
    axes: Axes = figure.subplots()
    start = (number(reference["KL"]), number(reference["reward"]))
    for system, rows in groupby(sorted(runs, key=system_of), key=system_of):
        colour, marker, line = STYLES[system]
        for position, row in enumerate(rows):
            xs, ys = zip(start, (number(row["KL"]), number(row["reward"])), strict=True)
            label = f"{system[0]} K = {system[1].split()[0]}" if position == 0 else None
            axes.plot(xs, ys, line, color=colour, marker=marker, ms=7, lw=1.5, alpha=0.9, label=label, markevery=[1])
    axes.plot(*start, "*", color=GREY, ms=14, label="SFT, the reference", ls="none")
    axes.set_xlabel("KL to the reference (nats per response)")
    axes.set_ylabel("expected reward")
    axes.set_title("19 held-out prompts, 8 samples each; one line per seed")
    figure.legend(frameon=False, labelcolor=GREY, fontsize=9, loc="outside right upper")
    style_axes(axes)
    return figure


def system_of(row: Row) -> tuple[str, str]:
    """(objective, K) of a run."""
    return row["run"], row["K"]


def draw_frontiers() -> Figure:
    """Reward against KL of MS-16 and DPO-16: one line per run, a marker at each quarter of its updates."""
    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    axes: Axes = figure.subplots()
    for row in table("| arm | seed | KL at quarters |"):
        colour, marker = {"MS-16": (ORANGE, "s"), "DPO-16": (BLUE, "o")}[row["arm"]]
        kls, rewards = ([number(each) for each in row[f"{name} at quarters"].split()] for name in ("KL", "reward"))
        label = row["arm"] if row["seed"] == "0" else None
        axes.plot(kls, rewards, color=colour, marker=marker, ms=5, lw=1.2, alpha=0.8, label=label)
    axes.set_xlabel("KL to the starting policy (nats per response)")
    axes.set_ylabel("expected reward")
    axes.set_title("96 held-out prompts, 8 samples each; one line per seed")
    axes.legend(frameon=False, labelcolor=GREY)
    style_axes(axes)
    return figure
