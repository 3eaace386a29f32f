"""Reward at equal KL: each system's runs (of several strengths, several seeds) make a frontier, read off where all systems reach.

A method that moves a policy farther can always be given more reward; so systems are compared at the same KL to the reference. A
frontier starts at the reference itself (KL 0) and is linear between its runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

from eval.alignment.types import MeasuredRun, RewardAtKl
from eval.shared.statistics import compare_seeds

SHARES = (0.25, 0.5, 0.75, 1.0)
"""Of the largest KL that every frontier reaches: where they are read off."""


def equal_kl(runs: Sequence[MeasuredRun], reference_rewards: Sequence[float]) -> list[RewardAtKl]:
    """Every system at every KL of the grid, with its difference from the system of the first run: prompts and seeds resampled, p
    corrected over the systems at one KL.
    """
    first, *others = dict.fromkeys(run.system for run in runs)
    found = []
    for kl in grid(runs):
        rewards = {
            system: rewards_by_seed(of_system(runs, system), reference_rewards, kl) for system in (first, *others)
        }
        verdicts = compare_seeds({system: (rewards[system], rewards[first]) for system in others})
        for system, by_seed in rewards.items():
            own = tuple(fmean(values) for values in by_seed)
            found.append(RewardAtKl(system, kl, fmean(own), verdicts.get(system), own))
    return found


def grid(runs: Sequence[MeasuredRun]) -> list[float]:
    """SHARES of the largest KL that the frontier of every system and seed reaches; none where one never leaves the reference."""
    farthest: defaultdict[tuple[str, int], float] = defaultdict(float)
    for run in runs:
        key = (run.system, run.seed)
        farthest[key] = max(farthest[key], run.kl)
    common = min(farthest.values())
    return [share * common for share in SHARES] if common > 0 else []


def rewards_by_seed(runs: Sequence[MeasuredRun], reference_rewards: Sequence[float], kl: float) -> list[list[float]]:
    """One system's reward at a KL: a list a seed, in their order, a figure a prompt."""
    seeds = sorted({run.seed for run in runs})
    return [frontier_at([run for run in runs if run.seed == seed], reference_rewards, kl) for seed in seeds]


def frontier_at(runs: Sequence[MeasuredRun], reference_rewards: Sequence[float], kl: float) -> list[float]:
    """Reward on each prompt at a KL between two runs of one seed (or the reference and a run), linear between them."""
    points = [(0.0, list(reference_rewards))]
    points += sorted(((run.kl, [one.reward for one in run.figures]) for run in runs), key=lambda point: point[0])
    points = [point for point in points if point[0] >= 0]
    for (low, below), (high, above) in pairwise(points):
        if low <= kl <= high:
            share = (kl - low) / (high - low) if high > low else 1.0
            return [(1 - share) * left + share * right for left, right in zip(below, above, strict=True)]
    return points[-1][1]


def of_system(runs: Sequence[MeasuredRun], system: str) -> list[MeasuredRun]:
    """The runs of one system."""
    return [run for run in runs if run.system == system]
