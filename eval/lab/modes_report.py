"""The report of `modegraph lab modes`: a headline, a table, and modes.json and modes.png in one folder."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import torch
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from eval.lab.modes import (
    BETA_POLICY,
    DPO_PAIRS,
    FORWARD,
    LEARNING_RATE,
    RESPONSES_PER_STEP,
    REVERSE,
    STARTS,
    Experiment,
    Fit,
    FittedPolicy,
    Method,
    log_gaussian,
    log_target,
)
from eval.plots import save_figure
from eval.tables import NONE, Table
from graph.errors import UserError
from graph.shared.console import say
from graph.shared.jsonl import write_json

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
    caption = "Of several starts the lowest loss counts, unless stated otherwise; whiskers: lowest and highest seed"
    figure.suptitle(f"A policy with one mode, a target with two. {conditions}\n{caption}", fontsize=10)
    save_figure(figure, file)


def _draw_policies(axes: Axes, experiment: Experiment) -> None:
    line = experiment.line
    points = line.points_X.tolist()
    axes.fill_between(points, log_target(line).exp().tolist(), color=TARGET_COLOUR, label="target π*", step="mid")
    axes.plot(points, line.log_reference_X.exp().tolist(), ":", color=REFERENCE_COLOUR, label="reference π_ref")
    for fit, colour, style in _drawn_fits(experiment):
        label = f"{fit.objective.method}, K = {fit.objective.responses_per_prompt}"
        axes.plot(points, _probabilities(experiment, fit), style, color=colour, ms=3, label=label)
    axes.set_xlabel("outcome x")
    axes.set_ylabel("probability")
    axes.set_title("Policies (soft labels, seed 0)", fontsize=10)
    axes.legend(fontsize=8, frameon=False)


def _drawn_fits(experiment: Experiment) -> list[tuple[Fit, str, str]]:
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
    _label_means(axes, sizes, ms)
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
    _label_means(axes, smoothings, pairs)
    level = fmean(policy.reverse_kl for policy in experiment.fit_of(DPO_PAIRS).policies)
    axes.axhline(level, color=DPO_COLOUR, label="DPO pairs (ε = 0)")
    _draw_optima(axes, experiment)
    axes.set_xscale("log")
    axes.set_xlabel("ε of the pair (1 − ε, ε) (log scale)")
    axes.set_ylabel(REVERSE_KL)
    axes.set_title("K = 2, hard labels", fontsize=10)
    axes.legend(fontsize=8, frameon=False, loc="lower right", bbox_to_anchor=(1.0, 0.17))


def _draw_line(
    axes: Axes, positions: Sequence[float], fits: Sequence[Fit], colour: str, style: str, label: str
) -> None:
    """Means over seeds, with whiskers from the lowest to the highest seed."""
    values = [[policy.reverse_kl for policy in fit.policies] for fit in fits]
    means = [fmean(seed_values) for seed_values in values]
    below = [mean - min(seed_values) for mean, seed_values in zip(means, values, strict=True)]
    above = [max(seed_values) - mean for mean, seed_values in zip(means, values, strict=True)]
    axes.errorbar(positions, means, yerr=[below, above], fmt=style, color=colour, ms=5, capsize=3, label=label)


def _label_means(axes: Axes, positions: Sequence[float], fits: Sequence[Fit]) -> None:
    """Annotate each point with μ: the mode that the policy sits on, if any."""
    for position, fit in zip(positions, fits, strict=True):
        height, mean = (fmean(values) for values in zip(*((p.reverse_kl, p.mean) for p in fit.policies), strict=True))
        text = axes.annotate(
            f"μ {mean:.1f}".replace("-", "−"),
            (position, height),
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


NEAR_NATS = 0.02
FIT_MEASURES: tuple[tuple[str, str, Callable[[FittedPolicy], float]], ...] = (
    ("reverse_kl", "KL(π‖π*)", lambda policy: policy.reverse_kl),
    ("reverse_kl_from_reference", "same, from π_ref", lambda policy: policy.reverse_kl_from_reference),
    ("forward_kl", "KL(π*‖π)", lambda policy: policy.forward_kl),
    ("expected_reward", "E[r]", lambda policy: policy.expected_reward),
    ("mean", "μ", lambda policy: policy.mean),
    ("width", "σ", lambda policy: policy.width),
)


def modes_headline(experiment: Experiment) -> str:
    """Which K reach the reverse-KL optimum, at which β, and how much the choice among starts matters."""
    exact = experiment.fit_of(REVERSE).policies[0]
    methods: tuple[Method, ...] = ("MS", "DPO")
    reached = "; ".join(
        f"{method} {_reached(experiment.fits_by(method, 'soft'), exact.reverse_kl)}" for method in methods
    )
    return (
        f"Soft labels, β_r = {experiment.line.beta_reward:g}, β_π = {BETA_POLICY:g}, best of {len(STARTS)} starts: "
        f"KL(π‖π*) within {NEAR_NATS} of the reverse-KL optimum, {exact.reverse_kl:.3f}, for every seed: {reached}. "
        f"Started at π_ref alone, the exact reverse KL ends at {exact.reverse_kl_from_reference:.3f}."
    )


def _reached(fits: Sequence[Fit], optimum: float) -> str:
    near = [
        f"{fit.objective.responses_per_prompt}"
        for fit in fits
        if max(policy.reverse_kl for policy in fit.policies) <= optimum + NEAR_NATS
    ]
    lowest = min(policy.reverse_kl for fit in fits for policy in fit.policies)
    return f"for K = {', '.join(near)}" if near else f"for no K (lowest: {lowest:.2f})"


def conditions_text(experiment: Experiment) -> str:
    """β, seeds, steps and responses: the conditions to state with every table and figure."""
    return (
        f"β_r = {experiment.line.beta_reward:g}, β_π = {BETA_POLICY:g}; seeds 0 to {experiment.seeds - 1}, "
        f"{experiment.steps} steps of {RESPONSES_PER_STEP:,} responses drawn from π_ref"
    )


def modes_table(experiment: Experiment) -> Table:
    """One row per objective; means over seeds, the standard deviation after ±."""
    header = ("objective", "labels", "K", "ε", "β_r", "β_π", *(title for _, title, _ in FIT_MEASURES))
    rows = tuple(_fit_row(fit, experiment.line.beta_reward) for fit in experiment.fits)
    note = (
        f"{conditions_text(experiment)}. KLs in nats; mean ± standard deviation over seeds. Of {len(STARTS)} starts the one "
        "with the lowest loss counts; 'from π_ref' is where the start at the reference policy ended. Hard labels: "
        "pairs, higher reward first, with ε in place of β_r."
    )
    return Table("A policy with one mode, a target with two: where each objective leads", header, rows, note)


def _fit_row(fit: Fit, beta_reward: float) -> tuple[str, ...]:
    objective = fit.objective
    size = NONE if objective.responses_per_prompt is None else f"{objective.responses_per_prompt}"
    smoothing = NONE if objective.label_smoothing is None else f"{objective.label_smoothing:g}"
    softness = NONE if objective.labels == "hard" else f"{beta_reward:g}"
    figures = (_mean_and_spread([of(policy) for policy in fit.policies]) for _, _, of in FIT_MEASURES)
    return (objective.method, objective.labels, size, smoothing, softness, f"{BETA_POLICY:g}", *figures)


def _mean_and_spread(values: Sequence[float]) -> str:
    mean = f"{fmean(values):.3f}"
    return mean if len(values) == 1 else f"{mean} ± {stdev(values):.3f}"


def modes_json(experiment: Experiment) -> dict[str, Any]:
    """Headline, settings, and for every objective its figures: means, standard deviations, single seeds."""
    line = experiment.line
    return {
        "headline": modes_headline(experiment),
        "settings": {
            "beta_reward": line.beta_reward,
            "beta_policy": BETA_POLICY,
            "seeds": list(range(experiment.seeds)),
            "steps": experiment.steps,
            "responses_per_step": RESPONSES_PER_STEP,
            "learning_rate": LEARNING_RATE,
            "starts": [{"mean": mean, "width": width} for mean, width in STARTS],
            "points": line.points_X.tolist(),
            "reference": line.log_reference_X.exp().tolist(),
            "rewards": line.rewards_X.tolist(),
        },
        "objectives": [_fit_json(fit) for fit in experiment.fits],
    }


def _fit_json(fit: Fit) -> dict[str, Any]:
    by_seed = {name: [of(policy) for policy in fit.policies] for name, _, of in FIT_MEASURES}
    return {
        **asdict(fit.objective),
        "labels": fit.objective.labels,
        "means": {name: fmean(values) for name, values in by_seed.items()},
        "standard_deviations": {name: stdev(values) if len(values) > 1 else None for name, values in by_seed.items()},
        "by_seed": by_seed,
    }


def make_folder(out: Path) -> None:
    """Make `out` if it is missing, before minutes of work; UserError when it cannot be a folder."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise UserError(f"--out {out}: {problem.strerror}", "a folder that can be made", "change the path") from None


def write_modes(experiment: Experiment, out: Path) -> None:
    """modes.json and modes.png into `out`, which exists."""
    write_json(out / "modes.json", modes_json(experiment))
    draw_modes(experiment, conditions_text(experiment), out / "modes.png")
    say(f"wrote {out / 'modes.json'} and {out / 'modes.png'}")
