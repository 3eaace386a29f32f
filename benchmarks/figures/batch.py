"""docs/figures/batch: one prompt's responses before and after MS and DPO, from benchmarks/figures/data/batch.json (benchmarks/figures/measure.py)."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray
from scipy.special import softmax

from benchmarks.figures.style import BLUE, DATA, GREEN, GREY, ORANGE, style_axes

SERIES = {"untuned": (GREY, "o", -0.22), "MS": (BLUE, "s", 0.0), "DPO": (ORANGE, "D", 0.22)}
"""Colour, marker and vertical offset of each series."""
REFERENCE = "untuned"


def draw() -> Figure:
    """One row per response, highest reward first: log π on the left; on the right, the response's share among the K, by policy and by rewards."""
    data = json.loads((DATA / "batch.json").read_text(encoding="utf-8"))
    order = sorted(range(len(data["rewards"])), key=lambda index: -data["rewards"][index])
    figure = Figure(figsize=(10, 0.42 * len(order) + 1.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for name, (colour, marker, offset) in SERIES.items():
        rows = [row + offset for row in range(len(order))]
        left.plot(
            [data["logps"][name][index] for index in order], rows, marker, color=colour, ms=6, label=f"log π, {name}"
        )
    shares = shares_of(data)
    right.barh(range(len(order)), [shares["rewards"][index] for index in order], 0.75, color=GREEN, alpha=0.3)
    for name in ("MS", "DPO"):
        colour, marker, offset = SERIES[name]
        rows = [row + offset for row in range(len(order))]
        right.plot([shares[name][index] for index in order], rows, marker, color=colour, ms=6)
    right.axvline(1 / len(order), color=GREY, lw=1, ls=":")
    label(left, right, data, order)
    figure.legend(*legend(left), loc="outside lower center", ncols=5, frameon=False, labelcolor=GREY, fontsize=9)
    return figure


def shares_of(data: dict[str, Any]) -> dict[str, NDArray[np.float64]]:
    """softmax(r / β_r) of the rewards, and softmax(β_π (log π − log π_untuned)) of each tuned model."""
    settings, logps = data["settings"], data["logps"]
    shares = {"rewards": softmax(np.array(data["rewards"]) / settings["beta_reward"])}
    for name in ("MS", "DPO"):
        shares[name] = softmax(settings["beta"] * (np.array(logps[name]) - logps[REFERENCE]))
    return shares


def label(left: Axes, right: Axes, data: dict[str, Any], order: list[int]) -> None:
    """Label each row with the beginning of its response and the reward, and label the axes."""
    texts = [" ".join(data["responses"][index].split()) for index in order]
    names = [
        f"{text[:44]}{'…' if len(text) > 44 else ''}  r {data['rewards'][index]:.2f}"
        for text, index in zip(texts, order, strict=True)
    ]
    left.set_yticks(range(len(order)), names, fontsize=8)
    left.invert_yaxis()
    left.set_xlabel("log π(y|x), nats")
    right.set_xlabel("share of the K responses")
    for axes in (left, right):
        style_axes(axes)


def legend(left: Axes) -> tuple[list[Any], list[str]]:
    """Handles and labels of the series of both panels."""
    handles, labels = left.get_legend_handles_labels()
    rewards = Patch(color=GREEN, alpha=0.3)
    even = Line2D([], [], color=GREY, ls=":", lw=1)
    return [*handles, rewards, even], [*labels, "p_r, the rewards' share", "1 / K, p_f before training"]
