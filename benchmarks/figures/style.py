"""Shared by the figures: reading tables of docs/results.md, colours, axes, and saving."""

from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results.md"
DATA = Path(__file__).parent / "data"
"""The data that measure.py and recall.py wrote."""
Row = dict[str, str]


def table(beginning: str, page: Path = RESULTS) -> list[Row]:
    """The rows of the only table whose header starts with `beginning`, keyed by column name; ValueError unless there is exactly one."""
    lines = page.read_text(encoding="utf-8").splitlines()
    heads = [index for index, line in enumerate(lines) if line.startswith(beginning)]
    if len(heads) != 1:
        raise ValueError(f"{len(heads)} tables of {page} begin with {beginning!r}; expected exactly one")
    names = cells(lines[heads[0]])
    rows = []
    for line in lines[heads[0] + 2 :]:
        if not line.startswith("|"):
            break
        rows.append(dict(zip(names, cells(line), strict=True)))
    return rows


def cells(line: str) -> list[str]:
    """The cells of a line, without emphasis and backticks."""
    return [cell.strip().strip("*`") for cell in line.strip().strip("|").split("|")]


def number(text: str) -> float:
    """A figure as written in a table.

    >>> number(".931"), number("−.065"), number("+.021"), number("2,994")
    (0.931, -0.065, 0.021, 2994.0)
    """
    return float(text.replace("−", "-").replace(",", ""))


GREY = "#7f8a94"
"""Readable on light and on dark pages; figures have no background."""
BLUE, ORANGE, GREEN, PINK, SKY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9"
"""The palette of Okabe and Ito; most series also differ in marker or line style."""
SVG = {
    "svg.hashsalt": "modegraph",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
}


def style_axes(axes: Axes) -> None:
    """Draw grey axes on the left and at the bottom, and a faint grid."""
    axes.grid(alpha=0.25)
    axes.tick_params(colors=GREY, which="both")
    axes.xaxis.label.set_color(GREY)
    axes.yaxis.label.set_color(GREY)
    axes.title.set_color(GREY)
    axes.title.set_fontsize(10)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(GREY)


def save(figure: Figure, folder: Path, name: str) -> None:
    """Write NAME.svg and NAME.png into `folder`; the same figure gives the same bytes."""
    with rc_context(SVG):
        figure.savefig(folder / f"{name}.svg", transparent=True, metadata={"Date": None})
        figure.savefig(folder / f"{name}.png", transparent=True, dpi=150, metadata={"Software": None})
