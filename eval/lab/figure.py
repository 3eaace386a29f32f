"""The figure of `modegraph lab modes`: policies against their target, KL against K, and K = 2 pairs against ε."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import torch
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from eval.compare.figures import save_figure
from eval.lab.line import log_gaussian, log_target
from eval.lab.types import DPO_PAIRS, FORWARD, REVERSE, Experiment, Fit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MS_COLOUR, DPO_COLOUR = "#2b7bba", "#e08a3c"
TARGET_COLOUR, REFERENCE_COLOUR, OPTIMUM_COLOUR = "#c9d3dc", "#7a8794", "#444444"
REVERSE_KL = "KL(π‖π*), nats"


def draw_modes(experiment: Experiment, conditions: str, file: Path) -> None:
    """Write the PNG; `conditions` (β, seeds, steps) goes over the panels."""
    figure = Figure(figsize=(15.0, 5.0), layout="constrained")
    policies, by_size, by_smoothing = figure.subplots(1, 3, width_ratios=(1.25, 1, 1))
    _draw_policies(policies, experiment)
    _draw_by_size(by_size, experiment)
    _draw_by_smoothing(by_smoothing, experiment)
    by_smoothing.sharey(by_size)
    for axes in (policies, by_size, by_smoothing):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_ylim(bottom=0)
    reading = "Of several starts the lowest loss counts, unless said otherwise; whiskers: lowest and highest seed"
    figure.suptitle(f"A policy with one mode, a target with two. {conditions}\n{reading}", fontsize=10)
    save_figure(figure, file)


def _draw_policies(axes: Axes, experiment: Experiment) -> None:
    line = experiment.line
    points = line.points_X.tolist()
    axes.fill_between(points, log_target(line).exp().tolist(), color=TARGET_COLOUR, label="target π*", step="mid")
    axes.plot(points, line.log_reference_X.exp().tolist(), ":", color=REFERENCE_COLOUR, label="reference π_ref")
    for fit, colour, style in _shown(experiment):
        label = f"{fit.objective.method}, K = {fit.objective.responses_per_prompt}"
        axes.plot(points, _probabilities(experiment, fit), style, color=colour, ms=3, label=label)
    axes.set_xlabel("outcome x")
    axes.set_ylabel("probability")
    axes.set_title("Policies (soft labels, seed 0)", fontsize=10)
    axes.legend(fontsize=8, frameon=False)


def _shown(experiment: Experiment) -> list[tuple[Fit, str, str]]:
    """MS at the smallest, a middle and the largest K, DPO at the largest: fit, colour, line style."""
    ms, dpo = (experiment.fits_by(method, "soft") for method in ("MS", "DPO"))
    middle = ms[(len(ms) - 1) // 2]
    return [
        (ms[0], MS_COLOUR, "o:"),
        (middle, MS_COLOUR, "o--"),
        (ms[-1], MS_COLOUR, "o-"),
        (dpo[-1], DPO_COLOUR, "s-"),
    ]


def _probabilities(experiment: Experiment, fit: Fit) -> list[float]:
    policy = fit.policies[0]
    parameters_P = torch.tensor([policy.mean, math.log(policy.width)], dtype=torch.float64)
    probabilities: list[float] = log_gaussian(experiment.line.points_X, parameters_P).exp().tolist()
    return probabilities


def _draw_by_size(axes: Axes, experiment: Experiment) -> None:
    ms, dpo = (experiment.fits_by(method, "soft") for method in ("MS", "DPO"))
    sizes = [fit.objective.responses_per_prompt or 0 for fit in ms]
    _draw_line(axes, sizes, ms, MS_COLOUR, "o-", "MS")
    from_reference = [fmean(policy.reverse_kl_from_reference for policy in fit.policies) for fit in ms]
    axes.plot(sizes, from_reference, "o:", color=MS_COLOUR, ms=4, mfc="white", label="MS, start at π_ref only")
    _draw_line(axes, [fit.objective.responses_per_prompt or 0 for fit in dpo], dpo, DPO_COLOUR, "s-", "DPO")
    _tell_means(axes, sizes, ms)
    _draw_optima(axes, experiment)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set_xlabel("K responses a prompt (log scale)")
    axes.set_ylabel(REVERSE_KL)
    axes.set_title("Soft labels, softmax(r / β_r)", fontsize=10)
    axes.legend(fontsize=8, frameon=False, loc="center right")


def _draw_by_smoothing(axes: Axes, experiment: Experiment) -> None:
    pairs = experiment.fits_by("MS", "hard")
    smoothings = [fit.objective.label_smoothing or 0.0 for fit in pairs]
    _draw_line(axes, smoothings, pairs, MS_COLOUR, "o-", "MS pairs")
    _tell_means(axes, smoothings, pairs)
    level = fmean(policy.reverse_kl for policy in experiment.fit_of(DPO_PAIRS).policies)
    axes.axhline(level, color=DPO_COLOUR, label="DPO pairs (ε = 0)")
    _draw_optima(axes, experiment)
    axes.set_xscale("log")
    axes.set_xlabel("ε of the pair (1 − ε, ε) (log scale)")
    axes.set_ylabel(REVERSE_KL)
    axes.set_title("K = 2, hard labels", fontsize=10)
    axes.legend(fontsize=8, frameon=False, loc="lower right", bbox_to_anchor=(1.0, 0.17))


def _draw_line(axes: Axes, places: Sequence[float], fits: Sequence[Fit], colour: str, style: str, label: str) -> None:
    """Means over seeds, with whiskers from the lowest to the highest seed."""
    values = [[policy.reverse_kl for policy in fit.policies] for fit in fits]
    means = [fmean(own) for own in values]
    below = [mean - min(own) for mean, own in zip(means, values, strict=True)]
    above = [max(own) - mean for mean, own in zip(means, values, strict=True)]
    axes.errorbar(places, means, yerr=[below, above], fmt=style, color=colour, ms=5, capsize=3, label=label)


def _tell_means(axes: Axes, places: Sequence[float], fits: Sequence[Fit]) -> None:
    """μ over each point: which mode the policy sits on, if any."""
    for place, fit in zip(places, fits, strict=True):
        height, mean = (fmean(values) for values in zip(*((p.reverse_kl, p.mean) for p in fit.policies), strict=True))
        text = axes.annotate(
            f"μ {mean:.1f}".replace("-", "−"),
            (place, height),
            (6, 7),
            textcoords="offset points",
            color=MS_COLOUR,
            fontsize=8,
        )
        text.set_path_effects([withStroke(linewidth=3, foreground="white")])


def _draw_optima(axes: Axes, experiment: Experiment) -> None:
    for objective, style in ((REVERSE, "--"), (FORWARD, "-.")):
        level = experiment.fit_of(objective).policies[0].reverse_kl
        name = f"{objective.method} optimum: {level:.2f}"
        axes.axhline(level, color=OPTIMUM_COLOUR, linestyle=style, linewidth=1, label=name)
