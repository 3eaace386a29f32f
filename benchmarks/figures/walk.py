"""docs/figures/walk: one question's walk by `hops`, from benchmarks/figures/data/walk.json (benchmarks/figures/measure.py)."""

from __future__ import annotations

import json
import textwrap
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.figures.style import BLUE, DATA, GREY, ORANGE

LINK_PREFIX = "mentions "
QUESTION_X, PASSAGE_X, LINK_X = 0.0, 3.4, 7.0
QUESTION_WIDTH, PASSAGE_WIDTH, LINK_WIDTH = 2.2, 2.6, 2.6
HEIGHT = 0.66
"""Height of a passage's box; passages are stacked one unit apart."""


def draw() -> Figure:
    """The question on the left, the retrieved passages in the middle, the links between passages on the right."""
    data = json.loads((DATA / "walk.json").read_text(encoding="utf-8"))
    passages = data["passages"]
    figure = Figure(figsize=(10, 4), layout="constrained")
    axes: Axes = figure.subplots()
    middle = (len(passages) - 1) / 2
    box(axes, QUESTION_X, -middle, QUESTION_WIDTH, 1.5, wrap(data["question"], 26), GREY)
    sources = {passage["title"]: index for index, passage in enumerate(passages)}
    for index, passage in enumerate(passages):
        colour = ORANGE if is_linked(passage) else BLUE
        text = f"{index + 1}. {passage['title']}\n{passage['score']:.2f} · dense: {passage['dense rank'] or 'not in top 100'}"
        box(axes, PASSAGE_X, -index, PASSAGE_WIDTH, HEIGHT, text + ("  ★" if passage["gold"] else ""), colour)
        if is_linked(passage):
            draw_link(axes, index, passage, sources)
        else:
            draw_arrow(axes, QUESTION_X + QUESTION_WIDTH, -middle, PASSAGE_X, -index, BLUE, "-")
    axes.text(PASSAGE_X, 0.62, "★ gold passage", color=GREY, fontsize=9, va="bottom")
    axes.set_xlim(-0.1, LINK_X + LINK_WIDTH + 0.1)
    axes.set_ylim(-len(passages) + 0.45, 0.95)
    axes.set_axis_off()
    return figure


def draw_link(axes: Axes, index: int, passage: dict[str, Any], sources: dict[str, int]) -> None:
    """Draw a link: an arrow from the passage with the linking proposition to that proposition's box, and one from the box to the linked passage."""
    link_text, mention = passage["path"][0].strip("“”"), passage["path"][1]
    title, _, sentence = link_text.partition(": ")
    seed = sources.get(title, index)
    y = -(seed + index) / 2
    box(axes, LINK_X, y, LINK_WIDTH, 1.1, f"{wrap(f'“{sentence or link_text}”', 33)}\n{mention}", ORANGE, "--")
    draw_arrow(axes, PASSAGE_X + PASSAGE_WIDTH, -seed, LINK_X, y + 0.3, ORANGE, "--")
    draw_arrow(axes, LINK_X, y - 0.3, PASSAGE_X + PASSAGE_WIDTH, -index, ORANGE, "--")


def is_linked(passage: dict[str, Any]) -> bool:
    """Whether the passage was reached by a link."""
    return any(step.startswith(LINK_PREFIX) for step in passage["path"])


def box(axes: Axes, x: float, y: float, width: float, height: float, text: str, colour: str, style: str = "-") -> None:
    """A frame around text, with its left side at x and its middle at y."""
    frame = [
        (x, y - height / 2),
        (x, y + height / 2),
        (x + width, y + height / 2),
        (x + width, y - height / 2),
        (x, y - height / 2),
    ]
    axes.plot(*zip(*frame, strict=True), color=colour, lw=1.5, ls=style)
    axes.text(x + 0.1, y, text, color=GREY, fontsize=9, va="center", linespacing=1.35)


def draw_arrow(axes: Axes, x: float, y: float, to_x: float, to_y: float, colour: str, style: str) -> None:
    """Draw an arrow from (x, y) to (to_x, to_y)."""
    arrow = {"arrowstyle": "->", "color": colour, "lw": 1.3, "ls": style, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", (to_x, to_y), (x, y), arrowprops=arrow)


def wrap(text: str, width: int) -> str:
    """The text, wrapped to several lines."""
    return "\n".join(textwrap.wrap(text, width))
