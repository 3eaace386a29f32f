"""docs/figures/recall: Recall@5 against milliseconds per question, one point per mode, from benchmarks/figures/data/recall.json. To write that file:

    modegraph eval retrieval INDEX --questions SET.jsonl --modes dense … --out measured/SET
    PYTHONPATH=. python -P -m benchmarks.figures.recall measured/*

Times exclude the encoding of the question, which costs the same in all modes.
"""

from __future__ import annotations

import argparse
import json
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.figures.style import BLUE, DATA, GREEN, GREY, ORANGE, PINK, style_axes
from graph.shared.jsonl import write_json

RECALL, SECONDS = "Recall@5", "s/query without encoder"
OURS = "hops"
PUBLISHED_SYSTEM = "HippoRAG 2, whole corpus"
PUBLISHED = {"musique_train100": 0.747, "2wiki_dev164": 0.904, "2wiki_train500": 0.904, "hotpotqa_train": 0.963}
"""PUBLISHED_SYSTEM's Recall@5 on MuSiQue, 2WikiMultiHopQA and HotpotQA, as reported by PropRAG's paper."""
COLOURS = (BLUE, ORANGE, GREEN, PINK)
MARKERS = "osD^"
CHARACTER_WIDTH, LINE_HEIGHT = 4.8, 9
OFFSETS = ((6, 3), (6, -11), (-6, 3), (-6, -11), (0, 8), (0, -16), (6, 14), (6, -22), (0, 20), (0, -28))
"""Where a label may begin (dx > 0), end (dx < 0) or be centred (0), relative to its data point, in typographic points."""


def main() -> None:
    """Read the measured sets and save their points."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("measured", nargs="+", type=Path, help="folders that `eval retrieval --out` wrote")
    parser.add_argument("--json", action="store_true", help="print the points")
    options = parser.parse_args()
    points = {folder.name: read_points(folder / "retrieval.json") for folder in options.measured}
    write_json(DATA / "recall.json", points)
    print(json.dumps(points) if options.json else DATA / "recall.json")


def read_points(file: Path) -> dict[str, tuple[float, float]]:
    """(milliseconds, Recall@5) by mode."""
    modes = json.loads(file.read_text(encoding="utf-8"))["systems"]
    return {mode: (round(1000 * figures[SECONDS], 2), round(figures[RECALL], 3)) for mode, figures in modes.items()}


def draw() -> Figure:
    """One panel per set; a dotted line shows the published recall of another system, if any, on the set's complete corpus and other questions."""
    points: dict[str, dict[str, tuple[float, float]]] = json.loads((DATA / "recall.json").read_text(encoding="utf-8"))
    figure = Figure(figsize=(4.6 * len(points), 3.6), layout="constrained")
    panels = figure.subplots(1, len(points), sharey=True, squeeze=False)[0]
    looks = cycle(zip(COLOURS, MARKERS, strict=True))
    for axes, (name, modes), (colour, marker) in zip(panels, points.items(), looks, strict=False):
        draw_set(axes, name, modes, colour, marker)
        if name in PUBLISHED:
            axes.axhline(PUBLISHED[name], color=GREY, ls=":", lw=1.2)
            position, label = (0.01, PUBLISHED[name]), {"textcoords": "offset points", "fontsize": 7, "color": GREY}
            axes.annotate(PUBLISHED_SYSTEM, position, (0, 3), xycoords=("axes fraction", "data"), **label)
    panels[0].set_ylabel(RECALL)
    panels[0].yaxis.label.set_color(GREY)
    figure.draw_without_rendering()
    for axes, modes in zip(panels, points.values(), strict=True):
        write_labels(axes, modes)
    return figure


def draw_set(axes: Axes, name: str, modes: dict[str, tuple[float, float]], colour: str, marker: str) -> None:
    """The modes of one set; the marker of OURS is filled."""
    for mode, (milliseconds, recall) in modes.items():
        axes.plot(milliseconds, recall, marker, color=colour, mfc=colour if mode == OURS else "none", ms=8)
    axes.set_xscale("log")
    axes.set_title(name)
    axes.set_xlabel("milliseconds per question (log scale)")
    axes.margins(x=0.2, y=0.12)
    style_axes(axes)


def write_labels(axes: Axes, modes: dict[str, tuple[float, float]]) -> None:
    """Write each mode's name next to its point, without covering other names and points if one of OFFSETS allows that."""
    pixels = axes.figure.dpi / 72
    positions = {mode: axes.transData.transform(point) / pixels for mode, point in modes.items()}
    taken = [Box(x - 5, y - 5, x + 5, y + 5) for x, y in positions.values()]
    for mode, (x, y) in positions.items():
        width = CHARACTER_WIDTH * len(mode)
        offsets = [(dx if dx > 0 else dx - width if dx < 0 else -width / 2, dy) for dx, dy in OFFSETS]
        boxes = [Box(x + dx, y + dy, x + dx + width, y + dy + LINE_HEIGHT) for dx, dy in offsets]
        free = next((n for n, box in enumerate(boxes) if not any(box.meets(other) for other in taken)), 0)
        taken.append(boxes[free])
        weight = "bold" if mode == OURS else "normal"
        label = {"textcoords": "offset points", "fontsize": 8, "color": GREY, "weight": weight}
        axes.annotate(mode, modes[mode], offsets[free], **label)


class Box(NamedTuple):
    """A rectangle, in typographic points."""

    left: float
    low: float
    right: float
    high: float

    def meets(self, other: Box) -> bool:
        """Whether the two overlap."""
        return self.left < other.right and other.left < self.right and self.low < other.high and other.low < self.high


if __name__ == "__main__":
    main()
