"""docs/figures/modes: Recall@5 of the retrieval modes on four sets, from two tables of docs/results.md."""

from matplotlib.figure import Figure

from benchmarks.figures.style import BLUE, GREY, ORANGE, number, style_axes, table

SETS = ("musique_train100 (100)", "2wiki_dev164 (164)", "2wiki_train500 (500)", "hotpotqa_train (757)")
OURS = "hops"


def draw() -> Figure:
    """One panel per set, one row per mode, lowest first; `hops` with and without matching the question's words."""
    matrix = {row["mode"]: row for row in table("| mode | musique_train100 (100)")}
    with_words = {row["set (questions)"]: number(row[OURS]) for row in table("| set (questions) | `dense` | `lexical`")}
    modes = sorted(matrix, key=lambda mode: sum(recall(matrix[mode][name]) for name in SETS))
    figure = Figure(figsize=(10.5, 3.6), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(SETS), sharex=True, sharey=True), SETS, strict=True):
        values = [recall(matrix[mode][name]) for mode in modes]
        axes.hlines(range(len(modes)), 0.4, values, color=GREY, alpha=0.3, lw=1)
        others = [index for index, mode in enumerate(modes) if mode != OURS]
        axes.scatter([values[index] for index in others], others, color=BLUE, s=40, zorder=3)
        axes.scatter([with_words[name]], [modes.index(OURS)], marker="D", color=ORANGE, s=30, zorder=3)
        axes.scatter(
            [values[modes.index(OURS)]], [modes.index(OURS)], facecolors="none", edgecolors=ORANGE, s=110, zorder=4
        )
        axes.set_title(name)
        axes.set_xlabel("Recall@5")
        axes.set_xlim(0.4, 1.02)
        axes.set_yticks(range(len(modes)), modes)
        style_axes(axes)
    figure.get_layout_engine().set(rect=(0, 0.06, 1, 0.94))
    legend = (
        "hops without the trained hop, with (diamond) or without (ring) matching of the question's words. "
        "The other modes were measured together with the ring."
    )
    figure.text(0.5, 0.02, legend, ha="center", fontsize=9, color=GREY)
    return figure


def recall(cell: str) -> float:
    """Recall@5, the first of the three figures of a cell.

    >>> recall(".620 · .320 · .560")
    0.62
    """
    return number(cell.split(" · ")[0])
