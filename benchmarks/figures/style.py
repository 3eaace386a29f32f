"""One look for all figures: colours that the colour-blind tell apart, text that reads on light and on dark pages, SVG and PNG."""

from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

GREY = "#7f8a94"
"""Reads on white as on dark pages; figures have no background."""
BLUE, ORANGE, GREEN, PINK, SKY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9"
"""Okabe and Ito's; every series has a marker of its own besides."""
SVG = {
    "svg.hashsalt": "modegraph",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
}


def dress(axes: Axes) -> None:
    """Grey axes at the left and below, a faint grid."""
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
    """NAME.svg and NAME.png in `folder`; the same figure gives the same bytes."""
    with rc_context(SVG):
        figure.savefig(folder / f"{name}.svg", transparent=True, metadata={"Date": None})
        figure.savefig(folder / f"{name}.png", transparent=True, dpi=150, metadata={"Software": None})
