"""docs/figures/study and study-equal-kl: MS against DPO on SmolLM2-135M-Instruct, from two tables of docs/results.md."""

from itertools import groupby

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.figures.style import BLUE, GREEN, GREY, ORANGE, PINK, SKY, Row, dress, interval, number, table

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
        for first, row in enumerate(rows):
            xs, ys = zip(start, (number(row["KL"]), number(row["reward"])), strict=True)
            label = f"{system[0]} K = {system[1].split()[0]}" if first == 0 else None
            axes.plot(xs, ys, line, color=colour, marker=marker, ms=7, lw=1.5, alpha=0.9, label=label, markevery=[1])
    axes.plot(*start, "*", color=GREY, ms=14, label="SFT, the reference", ls="none")
    axes.set_xlabel("KL to the reference, nats a response")
    axes.set_ylabel("expected reward")
    axes.set_title("19 held-out prompts, 8 samples each; one line per seed")
    figure.legend(frameon=False, labelcolor=GREY, fontsize=9, loc="outside right upper")
    dress(axes)
    return figure


def system_of(row: Row) -> tuple[str, str]:
    """(objective, K) of a run."""
    return row["run"], row["K"]


def draw_equal() -> Figure:
    """Reward at equal KL, minus that of DPO at K = 2, with 95 % intervals over prompts and seeds."""
    rows = [row for row in table("| system | reward | by seed |") if row["minus DPO K = 2"] != "–"]
    figure = Figure(figsize=(7.5, 2.6), layout="constrained")
    axes: Axes = figure.subplots()
    for index, row in enumerate(reversed(rows)):
        mean, low, high = interval(row["minus DPO K = 2"])
        name, _, count = row["system"].partition(" K = ")
        colour, marker, _ = STYLES[name, f"{count} (55)" if count == "64" else count or "2"]
        axes.errorbar(mean, index, xerr=[[mean - low], [high - mean]], fmt=marker, color=colour, capsize=4, ms=7)
    axes.axvline(0, color=GREY, lw=1)
    axes.set_yticks(range(len(rows)), [row["system"] for row in reversed(rows)])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlabel("reward at 2.51 nats, minus that of DPO K = 2 (95 % over prompts and seeds)")
    dress(axes)
    return figure
