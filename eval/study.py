"""`modegraph plan study`: the runs and hours of a training study, the smallest difference that it can show, and faults that would invalidate the study.

A study trains several systems (arms) with the same seeds and tests one contrast by the exact sign-flip test over seeds
(eval/statistics.py), in one look or in several, whose levels add up to .05 at most. Legend: B draws, S seeds, F sign flips."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from eval.held_out import check_unseen
from eval.statistics import LEVEL, equality_test, sign_flips
from graph.config import Settings, read_yaml
from graph.errors import UserError
from graph.shared.console import SECONDS_PER_HOUR
from train.run.data import read_responses

POWER, DRAWS, BISECTIONS = 0.8, 2000, 24


class ArmSettings(Settings):
    """One system: the stage that trains it, the settings file of its runs, and settings that override the file's."""

    stage: Literal["ms", "dpo"] = Field(description="stage of its runs: ms or dpo")
    config: str = Field("", description="YAML file of settings of its runs, relative to the working directory")
    settings: dict[str, Any] = Field({}, description="settings of its runs, which override those of `config`")
    seconds_per_update: float | None = Field(
        None, gt=0, description="seconds per update; null: measured over a few steps, as `plan train` does"
    )


class LookSettings(Settings):
    """An analysis of the contrast: the number of seeds at that point, and the level of its test."""

    seeds: int = Field(
        ge=2, le=14, description="number of seeds with which both arms of the contrast are trained before this analysis"
    )
    level: float = Field(
        default=LEVEL,
        gt=0,
        lt=1,
        description="largest p at which a difference (sign-flip test) or equality (two one-sided tests) counts as shown",
    )

    @model_validator(mode="after")
    def _check_level(self) -> LookSettings:
        least = 2.0 ** (1 - self.seeds)
        if self.level < least:
            raise ValueError(
                f"{self.seeds} seeds give a p of at least {least:.3g}, so level = {self.level:g} is out of reach: raise seeds or the level"
            )
        return self


class StudySettings(Settings):
    """A study: its arms, its primary contrast and the looks at it, its prompts, and its assumed costs and spreads.

    The first look needs runs of all arms; later looks, if it is inconclusive, need further runs of only the two arms of the contrast.
    """

    arms: dict[str, ArmSettings] = Field(min_length=2, description="systems by name")
    contrast: tuple[str, str] = Field(description="arms whose difference is tested, first minus second")
    looks: tuple[LookSettings, ...] = Field(
        min_length=1, description="analyses of the contrast, each with more seeds than the one before"
    )
    equal_within: float = Field(0.03, gt=0, description="margin within which the arms of the contrast are called equal")
    train_prompts: int = Field(ge=1, description="prompts to train on")
    dev_prompts: int = Field(0, ge=0, description="prompts on which the learning rates are compared")
    test_prompts: int = Field(ge=1, description="prompts to measure on")
    train_samples: int = Field(16, ge=2, description="responses sampled for each training prompt")
    test_samples: int = Field(
        8, ge=1, description="responses sampled for each test or dev prompt when a run is measured"
    )
    updates: int = Field(ge=1, description="updates of a run")
    checkpoints: int = Field(3, ge=1, description="checkpoints of a run that are measured")
    trial_rates: int = Field(0, ge=0, description="learning rates tried for each arm on the dev prompts, one run each")
    seconds_per_sample: float = Field(ge=0, description="seconds to sample and score one response")
    seed_sd: float = Field(gt=0, description="assumed standard deviation, over seeds, of the difference of two arms")
    prompt_sd: float = Field(
        gt=0, description="assumed standard deviation, over prompts, of that difference for one seed"
    )
    train: tuple[str, ...] = Field(
        (), description="folders of data on which the runs, or the model that they start from, are trained"
    )
    test: str = Field("", description="file of the rows to measure on, none of which may be in the folders of `train`")

    @model_validator(mode="after")
    def _check_parts(self) -> StudySettings:
        for name in self.contrast:
            if name not in self.arms:
                raise ValueError(f"contrast names {name!r}, which is not one of the arms {', '.join(self.arms)}")
        if len(set(self.contrast)) < 2:
            raise ValueError(f"contrast names {self.contrast[0]!r} twice")
        seeds = [look.seeds for look in self.looks]
        if seeds != sorted(set(seeds)):
            raise ValueError(f"looks have {', '.join(map(str, seeds))} seeds; each must have more than the one before")
        if (total := sum(look.level for look in self.looks)) > LEVEL + 1e-9:
            raise ValueError(f"the levels of the looks add up to {total:g}, more than {LEVEL:g}")
        for name, arm in self.arms.items():
            if "seed" in arm.settings:
                raise ValueError(
                    f"arm {name!r} sets seed = {arm.settings['seed']}, so its runs would not be paired with those of the other arms: "
                    "the study gives every arm the same seeds"
                )
        return self


@dataclass(frozen=True)
class LookPlan:
    """The cost of a look, including that of all earlier ones, and what it can show.

    `smallest_difference` is found with a power of 80 %; `equality_power` is the share of studies that show equality if there is no difference.
    """

    seeds: int
    level: float
    runs: int
    hours: float
    smallest_difference: float
    equality_power: float


@dataclass(frozen=True)
class StudyPlan:
    """The plan of a study: seconds per update for each arm, and the hours of sampling and of trial runs, which the hours of every look include."""

    seconds_per_update: Mapping[str, float]
    sampling_hours: float
    trial_runs: int
    trial_hours: float
    difference_sd: float
    looks: tuple[LookPlan, ...]


def plan_study(study: StudySettings, time_update: Callable[[ArmSettings], float]) -> StudyPlan:
    """The plan; `time_update` measures the seconds of an update for an arm without `seconds_per_update`."""
    update_seconds = {name: arm.seconds_per_update or time_update(arm) for name, arm in study.arms.items()}
    samples = study.train_prompts * study.train_samples + study.test_prompts * study.test_samples
    sampling = (samples + study.dev_prompts * study.test_samples) * study.seconds_per_sample
    trial = sum(
        study.trial_rates
        * (study.updates * seconds + study.dev_prompts * study.test_samples * study.seconds_per_sample)
        for seconds in update_seconds.values()
    )
    measuring_seconds = study.checkpoints * study.test_prompts * study.test_samples * study.seconds_per_sample
    run_seconds = {name: study.updates * seconds + measuring_seconds for name, seconds in update_seconds.items()}
    deviation = difference_sd(study.seed_sd, study.prompt_sd, study.test_prompts)
    trial_runs = len(update_seconds) * study.trial_rates
    runs, seconds, seeds_before = trial_runs, sampling + trial, 0
    looks: list[LookPlan] = []
    for look in study.looks:
        arms = study.contrast if looks else tuple(update_seconds)
        runs += len(arms) * (look.seeds - seeds_before)
        seconds += sum(run_seconds[name] for name in arms) * (look.seeds - seeds_before)
        seeds_before = look.seeds
        smallest = deviation * smallest_difference(look.seeds, look.level)
        power = equality_power(look.seeds, study.equal_within / deviation, look.level)
        looks.append(LookPlan(look.seeds, look.level, runs, seconds / SECONDS_PER_HOUR, smallest, power))
    sampling_hours, trial_hours = sampling / SECONDS_PER_HOUR, trial / SECONDS_PER_HOUR
    return StudyPlan(update_seconds, sampling_hours, trial_runs, trial_hours, deviation, tuple(looks))


def difference_sd(seed_sd: float, prompt_sd: float, prompts: int) -> float:
    """Standard deviation of one seed's mean difference over the prompts: √(σ_seed² + σ_prompt² / prompts).

    >>> difference_sd(0.03, 0.4, 100)
    0.05
    """
    return math.sqrt(seed_sd**2 + prompt_sd**2 / prompts)


def smallest_difference(seeds: int, level: float) -> float:
    """The smallest true difference that the exact sign-flip test finds with a power of 80 %, in standard deviations of a seed's difference.

    Found by bisection on simulated normal differences, with the same random numbers in every step: 1.79 for six seeds at level .05, where
    all six differences must have the same sign.
    """
    draws_SB = np.random.default_rng(0).standard_normal((seeds, DRAWS)).astype(np.float32)
    signs_FS = sign_flips(seeds).astype(np.float32)
    sums_FB, shifts_F1 = signs_FS @ draws_SB, signs_FS.sum(axis=1, keepdims=True)

    def power_at(difference: float) -> float:
        shifted_FB = np.abs(sums_FB + np.float32(difference) * shifts_F1)
        p_values_B = (shifted_FB >= shifted_FB[0] * np.float32(1 - 1e-5)).mean(axis=0)
        return float((p_values_B <= level).mean())

    low, high = 0.0, 16.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if power_at(middle) >= POWER else (middle, high)
    return high


def equality_power(seeds: int, margin: float, level: float) -> float:
    """The share of studies without a true difference whose two one-sided t-tests show equality; `margin` is in standard deviations of a seed's difference."""
    draws_BS = np.random.default_rng(1).standard_normal((DRAWS, seeds))
    return float(np.mean([equality_test(draw_S, margin) <= level for draw_S in draws_BS.tolist()]))


def check_study(study: StudySettings) -> None:
    """UserError for a reward that cannot be measured or differs between arms, and for a row of the file `test` (if it exists) that is in the training data."""
    from eval.alignment.measure import measurable_weights

    rewards = {name: train_settings(arm).get("rewards") for name, arm in study.arms.items()}
    first = study.contrast[0]
    for name, weights in rewards.items():
        if weights is not None:
            measurable_weights(weights, f"arm {name!r}")
        if weights != rewards[first]:
            found = f"arm {name!r} is rewarded by {weights}, {first!r} by {rewards[first]}"
            raise UserError(found, "arms that are trained for the same reward", "give all arms the same `rewards`")
    if study.test and Path(study.test).is_file():
        file = Path(study.test)
        check_unseen([("the study", Path(folder)) for folder in study.train], read_responses(file), file)


def train_settings(arm: ArmSettings) -> dict[str, Any]:
    """The settings of an arm's runs: those of its file, overridden by its own."""
    return {**(read_yaml(Path(arm.config)) if arm.config else {}), **arm.settings}
