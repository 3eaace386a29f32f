"""`modegraph plan study`: runs and hours computed by hand, differences compared with simulated studies, and faults that are refused."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import Result

from data_synth.rows import response_to_json
from eval.statistics import equality_test, sign_flip_test
from eval.study import (
    StudySettings,
    check_study,
    difference_sd,
    equality_power,
    plan_study,
    smallest_difference,
    train_settings,
)
from graph.config import load_settings, parse_settings
from graph.errors import UserError
from graph.shared.jsonl import write_jsonl
from tests.commands import run
from tests.places import ROOT
from tests.train.world import response_row

SHIPPED = ROOT / "configs" / "study" / "k-responses.yaml"
REWARDS = {"correct": 1.0, "length": 0.5}


def arm(stage: str, **settings: Any) -> dict[str, Any]:
    return {"stage": stage, "settings": {"rewards": REWARDS, **settings}, "seconds_per_update": 10}


def values(**changes: Any) -> dict[str, Any]:
    """Two arms with updates of 10 seconds, and a third with updates of 20 seconds that is not in the contrast; each trains for 100 updates."""
    arms = {"ms": arm("ms"), "dpo": arm("dpo"), "pairs": {**arm("dpo", responses=2), "seconds_per_update": 20}}
    numbers = {"train_prompts": 10, "dev_prompts": 5, "test_prompts": 20, "train_samples": 4, "test_samples": 3}
    assumed = {"seconds_per_sample": 2, "seed_sd": 0.03, "prompt_sd": 0.2}
    costs = {"updates": 100, "checkpoints": 3, "trial_rates": 2}
    looks = {"looks": [{"seeds": 6}]}
    return {"arms": arms, "contrast": ["ms", "dpo"], **looks, **numbers, **assumed, **costs, **changes}


def study(**changes: Any) -> StudySettings:
    return parse_settings(StudySettings, values(**changes), "study.yaml")


def refuse_to_time(arm: Any) -> float:
    raise AssertionError(f"an update of {arm.stage} was timed. Expected its configured seconds_per_update")


def test_runs_and_hours_match_values_computed_by_hand() -> None:
    """Later looks train only the arms of the contrast; 40 + 60 + 15 samples of 2 s come first, then two trial runs of each arm."""
    plan = plan_study(study(looks=[{"seeds": 6, "level": 0.032}, {"seeds": 8, "level": 0.01}]), refuse_to_time)
    measuring = 3 * 20 * 3 * 2
    trial = 2 * (1000 + 1000 + 2000 + 3 * 5 * 3 * 2)
    first = 115 * 2 + trial + 6 * (1000 + 1000 + 2000 + 3 * measuring)
    assert (plan.sampling_hours, plan.trial_hours) == (pytest.approx(230 / 3600), pytest.approx(trial / 3600))
    assert plan.trial_runs == 6 and [look.runs for look in plan.looks] == [6 + 18, 6 + 18 + 4]
    assert plan.looks[0].hours == pytest.approx(first / 3600)
    assert plan.looks[1].hours == pytest.approx((first + 2 * 2 * (1000 + measuring)) / 3600)
    assert plan.difference_sd == pytest.approx(math.sqrt(0.03**2 + 0.2**2 / 20))
    assert plan.looks[0].smallest_difference == pytest.approx(plan.difference_sd * smallest_difference(6, 0.032))


def test_the_updates_of_an_arm_without_seconds_per_update_are_timed() -> None:
    arms = values()["arms"]
    del arms["dpo"]["seconds_per_update"]
    plan = plan_study(study(arms=arms), lambda one: 7.0 if one.stage == "dpo" else refuse_to_time(one))
    assert plan.seconds_per_update == {"ms": 10, "dpo": 7.0, "pairs": 20}


def simulated_power(difference: float, seeds: int, level: float, draw: np.random.Generator) -> float:
    """The share of 1500 simulated studies, each with this number of seeds and 40 prompts per seed, in which the sign-flip test finds the difference."""
    found = 0
    for _ in range(1500):
        of_seed_S1, of_prompt_SQ = draw.normal(0, 0.03, (seeds, 1)), draw.normal(0, 0.2, (seeds, 40))
        found += sign_flip_test((difference + of_seed_S1 + of_prompt_SQ).mean(axis=1).tolist()) <= level
    return found / 1500


@pytest.mark.parametrize(("seeds", "level"), [(6, 0.05), (8, 0.05), (10, 0.018)])
def test_the_smallest_difference_is_found_in_eight_out_of_ten_studies(seeds: int, level: float) -> None:
    """More than 80 % of simulated studies find a difference 10 % larger, and fewer than 80 % find one 10 % smaller, so it is correct to within 10 %."""
    smallest = difference_sd(0.03, 0.2, 40) * smallest_difference(seeds, level)
    draw = np.random.default_rng(seeds)
    assert (
        simulated_power(0.9 * smallest, seeds, level, draw) < 0.8 < simulated_power(1.1 * smallest, seeds, level, draw)
    )
    assert simulated_power(smallest, seeds, level, draw) == pytest.approx(0.8, abs=0.04)


def test_with_six_seeds_the_power_is_the_chance_that_all_differences_have_the_right_sign() -> None:
    """Computed by hand: Φ(δ)⁶ = .8 for δ = 1.79 standard deviations."""
    power = (0.5 * (1 + math.erf(smallest_difference(6, 0.05) / math.sqrt(2)))) ** 6
    assert power == pytest.approx(0.8, abs=0.02)
    assert smallest_difference(6, 0.05) == smallest_difference(6, 0.032), (
        "six seeds can give no p between .032 and .05, so both levels should need the same difference"
    )


@pytest.mark.long
def test_the_power_of_the_equality_test_equals_that_of_simulations() -> None:
    draw = np.random.default_rng(3)
    simulated = np.mean([equality_test(draw.normal(0, 0.02, 8).tolist(), 0.03) < 0.05 for _ in range(1500)])
    assert equality_power(8, 0.03 / 0.02, 0.05) == pytest.approx(simulated, abs=0.04)
    assert equality_power(8, 0.03 / 0.02, 0.01) < simulated - 0.05
    assert equality_power(6, 0.3, 0.05) < 0.2
    assert equality_power(12, 2.0, 0.05) > 0.95


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"contrast": ["ms", "ipo"]}, "contrast names 'ipo', which is not one of the arms ms, dpo, pairs"),
        ({"contrast": ["ms", "ms"]}, "contrast names 'ms' twice"),
        ({"looks": [{"seeds": 5}]}, "5 seeds give a p of at least 0.0625, so level = 0.05 is out of reach"),
        ({"looks": [{"seeds": 6}, {"seeds": 12}]}, "the levels of the looks add up to 0.1, more than 0.05"),
        ({"looks": [{"seeds": 9, "level": 0.02}, {"seeds": 9, "level": 0.02}]}, "9, 9 seeds; each must have more"),
    ],
)
def test_a_study_with_an_invalid_contrast_or_look_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        study(**changes)


def plan(folder: Path, *words: str, **changes: Any) -> Result:
    file = folder / "study.yaml"
    file.write_text(json.dumps(values(**changes)), encoding="utf-8")
    return run("plan", "study", file, *words)


def test_studies_with_injected_faults_are_refused_with_errors_that_name_the_fault(tmp_path: Path) -> None:
    """A test prompt in the training data, an unpaired seed, a reward component that cannot be measured, unequal rewards. Without these, the plan is printed."""
    for name in ("sft", "responses"):
        (tmp_path / name).mkdir()
    write_jsonl(tmp_path / "sft" / "train.jsonl", [response_to_json(response_row(0))])
    write_jsonl(
        tmp_path / "responses" / "train.jsonl", [response_to_json(response_row(1)), response_to_json(response_row(2))]
    )
    write_jsonl(tmp_path / "test.jsonl", [response_to_json(response_row(3))])
    paths = {"train": [str(tmp_path / "sft"), str(tmp_path / "responses")], "test": str(tmp_path / "test.jsonl")}
    done = plan(tmp_path, **paths)
    assert done.exit_code == 0, done.output
    assert "3 arms, contrast ms − dpo" in done.stdout and "6 seeds: 24 runs" in done.stdout

    write_jsonl(tmp_path / "leaky.jsonl", [response_to_json(response_row(3)), response_to_json(response_row(2))])
    arms = values()["arms"]
    faults = [
        ({"test": str(tmp_path / "leaky.jsonl")}, "leaky.jsonl: row 'r2' is in the training data of the study"),
        ({"arms": {**arms, "dpo": arm("dpo", seed=3)}}, "arm 'dpo' sets seed = 3, so its runs would not be paired"),
        (
            {
                "arms": {
                    name: {**one, "settings": {"rewards": {"correct": 1.0, "gold": 0.5}}} for name, one in arms.items()
                }
            },
            "arm 'ms': the reward component 'gold' cannot be measured",
        ),
        (
            {"arms": {**arms, "dpo": arm("dpo", rewards={"gold": 0.5})}},
            "Expected components among correct, format, citations, length, variety. Leave this component out",
        ),
        ({"arms": {**arms, "dpo": arm("dpo", rewards={"correct": 1.0})}}, "arm 'dpo' is rewarded by {'correct': 1.0}"),
    ]
    for changes, message in faults:
        refused = plan(tmp_path, **{**paths, **changes})
        assert isinstance(refused.exception, UserError) and message in str(refused.exception), message


def test_without_trial_steps_an_arm_needs_seconds_per_update(tmp_path: Path) -> None:
    arms = values()["arms"]
    del arms["ms"]["seconds_per_update"]
    refused = plan(tmp_path, "--trial-steps", "0", arms=arms)
    assert isinstance(refused.exception, UserError) and "no seconds_per_update" in str(refused.exception)


@pytest.mark.long
def test_the_shipped_study_is_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    """It passes the checks, its arms have the settings of their stages, and its runs are counted at each look."""
    monkeypatch.chdir(ROOT)
    shipped = load_settings(StudySettings, SHIPPED)
    check_study(shipped)
    assert list(shipped.arms) == [*("MS-16", "DPO-16", "RLOO-16", "MS-2", "DPO-2", "MS-best-worst", "DPO-best-worst")]
    from train.plan.jobs import SETTINGS

    for one in shipped.arms.values():
        parse_settings(SETTINGS[one.stage], train_settings(one), "arm")
    planned = plan_study(shipped, refuse_to_time)
    assert [look.runs - planned.trial_runs for look in planned.looks] == [42, 54]
    plain = run("plan", "study", SHIPPED, "--json")
    assert json.loads(plain.stdout)["looks"][1]["seeds"] == 12
