"""What `modegraph lab modes` tells: a headline, a table, and modes.json and modes.png in one folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from eval.lab.figure import draw_modes
from eval.lab.line import BETA_POLICY
from eval.lab.modes import LEARNING_RATE, RESPONSES_PER_STEP, STARTS
from eval.lab.types import REVERSE, Experiment, Fit, FittedPolicy, Method
from eval.shared.tables import NONE, Table
from graph.shared.console import say
from graph.shared.errors import UserError
from graph.shared.jsonl import write_json

NEAR_NATS = 0.02
MEASURES: tuple[tuple[str, str, Callable[[FittedPolicy], float]], ...] = (
    ("reverse_kl", "KL(π‖π*)", lambda policy: policy.reverse_kl),
    ("reverse_kl_from_reference", "same, from π_ref", lambda policy: policy.reverse_kl_from_reference),
    ("forward_kl", "KL(π*‖π)", lambda policy: policy.forward_kl),
    ("expected_reward", "E[r]", lambda policy: policy.expected_reward),
    ("mean", "μ", lambda policy: policy.mean),
    ("width", "σ", lambda policy: policy.width),
)


def headline(experiment: Experiment) -> str:
    """Which K reach the reverse-KL optimum, with which β, and what the choice among starts is worth."""
    exact = experiment.fit_of(REVERSE).policies[0]
    methods: tuple[Method, ...] = ("MS", "DPO")
    told = "; ".join(f"{method} {_reached(experiment.fits_by(method, 'soft'), exact.reverse_kl)}" for method in methods)
    return (
        f"Soft labels, β_r = {experiment.line.beta_reward:g}, β_π = {BETA_POLICY:g}, best of {len(STARTS)} starts: "
        f"KL(π‖π*) within {NEAR_NATS} of the reverse-KL optimum, {exact.reverse_kl:.3f}, for every seed: {told}. "
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


def conditions(experiment: Experiment) -> str:
    """β, seeds, steps and responses: the words that go with every table and figure."""
    return (
        f"β_r = {experiment.line.beta_reward:g}, β_π = {BETA_POLICY:g}; seeds 0 to {experiment.seeds - 1}, "
        f"{experiment.steps} steps of {RESPONSES_PER_STEP:,} responses drawn from π_ref"
    )


def modes_table(experiment: Experiment) -> Table:
    """One row an objective; means over seeds, the standard deviation behind ±."""
    header = ("objective", "labels", "K", "ε", "β_r", "β_π", *(title for _, title, _ in MEASURES))
    rows = tuple(_row(each, experiment.line.beta_reward) for each in experiment.fits)
    note = (
        f"{conditions(experiment)}. KLs in nats; mean ± standard deviation over seeds. Of {len(STARTS)} starts the one "
        "with the lowest loss counts; 'from π_ref' is where the start at the reference policy ended. Hard labels: "
        "pairs, higher reward first, with ε in place of β_r."
    )
    return Table("A policy with one mode, a target with two: where each objective leads", header, rows, note)


def _row(fit: Fit, beta_reward: float) -> tuple[str, ...]:
    objective = fit.objective
    size = NONE if objective.responses_per_prompt is None else f"{objective.responses_per_prompt}"
    smoothing = NONE if objective.label_smoothing is None else f"{objective.label_smoothing:g}"
    softness = NONE if objective.labels == "hard" else f"{beta_reward:g}"
    figures = (_mean_and_spread([of(policy) for policy in fit.policies]) for _, _, of in MEASURES)
    return (objective.method, objective.labels, size, smoothing, softness, f"{BETA_POLICY:g}", *figures)


def _mean_and_spread(values: Sequence[float]) -> str:
    mean = f"{fmean(values):.3f}"
    return mean if len(values) == 1 else f"{mean} ± {stdev(values):.3f}"


def modes_json(experiment: Experiment) -> dict[str, Any]:
    """Headline, settings, and for every objective its figures: means, standard deviations, single seeds."""
    line = experiment.line
    return {
        "headline": headline(experiment),
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
    by_seed = {name: [of(policy) for policy in fit.policies] for name, _, of in MEASURES}
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
    draw_modes(experiment, conditions(experiment), out / "modes.png")
    say(f"wrote {out / 'modes.json'} and {out / 'modes.png'}")
