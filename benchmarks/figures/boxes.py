"""docs/figures/boxes: log π(y|x) of held-out pairs under each model of the demo, as GraphMPA's Figure 6 draws it, with the rejected side added;
from benchmarks/figures/data/boxes.json (benchmarks/figures/measure.py).
"""

import json

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from benchmarks.figures.style import BLUE, DATA, GREY, ORANGE, dress

SIDES = {"chosen": (BLUE, -0.2, ""), "rejected": (ORANGE, 0.2, "////")}
"""Colour, offset from its model's tick, and hatching."""


def draw() -> Figure:
    """Sums on the left, nats per token on the right: one box per side and model (quartiles, median; whiskers of 1.5 interquartile ranges)."""
    data = json.loads((DATA / "boxes.json").read_text(encoding="utf-8"))
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    summed, per_token = figure.subplots(1, 2)
    _draw_boxes(summed, data, dict.fromkeys(SIDES, 1.0))
    summed.set_ylabel("log π(y|x), nats")
    _draw_boxes(per_token, data, {side: np.array(data["tokens"][side]) for side in SIDES})
    per_token.set_ylabel("log π(y|x) / |y|, nats a token")
    handles = [
        Patch(facecolor="none", edgecolor=colour, hatch=hatch, label=side) for side, (colour, _, hatch) in SIDES.items()
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=2, frameon=False, labelcolor=GREY)
    return figure


def _draw_boxes(axes: Axes, data: dict, divisors: dict) -> None:
    models = list(data["logps"])
    for side, (colour, offset, hatch) in SIDES.items():
        drawn = axes.boxplot(
            [np.array(data["logps"][model][side]) / divisors[side] for model in models],
            positions=[index + offset for index in range(len(models))],
            widths=0.34,
            patch_artist=True,
            manage_ticks=False,
            flierprops={"marker": ".", "markersize": 3, "markeredgecolor": colour},
            medianprops={"color": colour, "linewidth": 2},
            whiskerprops={"color": colour},
            capprops={"color": colour},
        )
        for box in drawn["boxes"]:
            box.set(facecolor="none", edgecolor=colour, hatch=hatch)
    axes.set_xticks(range(len(models)), models)
    dress(axes)
