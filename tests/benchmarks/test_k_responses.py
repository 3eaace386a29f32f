"""benchmarks/experiments/k_responses.py: frontiers and contrasts against values computed by hand, and the choice of learning rates."""

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from benchmarks.experiments.k_responses import Job, best_rates, contrast, difference, frontier, jobs_of, report
from eval.study import StudySettings
from graph.config import parse_settings
from graph.shared.jsonl import write_json


def run(arm: str, seed: int, *points: tuple[float, list[float]], rate: float = 3e-4) -> dict[str, Any]:
    """A run whose checkpoints have these KLs (the same for each prompt) and rewards by prompt."""
    measured = [
        {name: [0.0] * len(rewards) for name in ("right", "entropy", "distinct", "words")}
        | {"update": 10 * number, "kl": [kl] * len(rewards), "reward": rewards}
        for number, (kl, rewards) in enumerate(points, start=1)
    ]
    return {"arm": arm, "seed": seed, "rate": rate, "seconds": 60.0, "points": measured}


def study(**changes: Any) -> StudySettings:
    arms = {name: {"stage": stage, "seconds_per_update": 1} for name, stage in (("MS", "ms"), ("DPO", "dpo"))}
    counts = {"train_prompts": 2, "dev_prompts": 1, "test_prompts": 2, "updates": 2, "checkpoints": 2}
    spread = {"seconds_per_sample": 1, "seed_sd": 0.01, "prompt_sd": 0.1}
    values = {"arms": arms, "contrast": ["MS", "DPO"], "looks": [{"seeds": 6}], **counts, **spread, **changes}
    return parse_settings(StudySettings, values, "study.yaml")


def test_a_frontier_interpolates_between_checkpoints_in_order_of_kl() -> None:
    one = run("MS", 0, (0.4, [0.8, 0.2]), (0.2, [0.4, 0.0]))
    assert frontier(one, 0.2) == pytest.approx([0.4, 0.0])
    assert frontier(one, 0.3) == pytest.approx([0.6, 0.1])
    assert frontier(one, 0.4) == pytest.approx([0.8, 0.2])


def test_the_difference_is_the_mean_over_the_kls_that_both_runs_reach() -> None:
    """Frontiers r = 2 KL on [.1, .4] and r = KL on [.2, .6]: on [.2, .4] they differ by KL, on average by .3. Frontiers are not extrapolated."""
    steep = run("MS", 0, (0.1, [0.2]), (0.4, [0.8]))
    flat = run("DPO", 0, (0.2, [0.2]), (0.6, [0.6]))
    assert difference(steep, flat) == pytest.approx([0.3])
    assert difference(steep, run("DPO", 0, (0.5, [0.2]), (0.6, [0.6]))) is None


def test_a_contrast_pairs_runs_of_the_same_seed() -> None:
    """Seed s adds s to both runs, so that every paired difference is .1; six differences of the same sign give p = 2 / 2⁶."""
    ms = {s: run("MS", s, (0.1, [s + 0.1]), (0.2, [s + 0.1])) for s in range(6)}
    dpo = {s: run("DPO", s, (0.1, [float(s)]), (0.2, [float(s)])) for s in range(6)}
    found = contrast(ms, dpo, 0.03)
    assert found["by seed"] == pytest.approx([0.1] * 6) and found["p"] == pytest.approx(2 / 64)
    assert found["p of equality within 0.03"] > 0.5
    equal = contrast(dpo, dpo, 0.03)
    assert equal["p"] == 1.0 and equal["p of equality within 0.03"] == 0.0


def test_a_seed_without_a_common_kl_leaves_the_contrast_undecided() -> None:
    ms = {s: run("MS", s, (0.1, [0.5]), (0.2, [0.5])) for s in range(2)}
    dpo = {0: run("DPO", 0, (0.1, [0.4]), (0.2, [0.4])), 1: run("DPO", 1, (0.3, [0.4]), (0.4, [0.4]))}
    found = contrast(ms, dpo, 0.03)
    assert found["seeds without a common KL"] == 1 and found["p"] is None
    assert found["at the end"] == pytest.approx(0.1)


def test_each_arm_runs_at_the_rate_that_is_best_on_dev(tmp_path: Path) -> None:
    trials = {("MS", 1e-4): 0.5, ("MS", 3e-4): 0.7, ("DPO", 1e-4): 0.6, ("DPO", 3e-4): 0.4}
    for (arm, rate), reward in trials.items():
        job = Job(arm, 100, rate, True)
        write_json(tmp_path / job.file, run(arm, 100, (0.1, [9.0]), (0.2, [reward]), rate=rate))
    assert best_rates(tmp_path) == {"MS": 3e-4, "DPO": 1e-4}
    jobs = jobs_of(study(), tmp_path, [], [0, 1], [])
    assert [(job.arm, job.seed, job.rate) for job in jobs] == [
        ("MS", 0, 3e-4),
        ("DPO", 0, 1e-4),
        ("MS", 1, 3e-4),
        ("DPO", 1, 1e-4),
    ]


def test_without_trials_an_arm_runs_at_the_rate_of_its_settings(tmp_path: Path) -> None:
    planned = study()
    planned.arms["MS"].settings["learning_rate"] = 2e-4
    assert [job.rate for job in jobs_of(planned, tmp_path, ["MS", "DPO"], [0], [])] == [2e-4, 1e-5], (
        "MS should run at the rate of its settings, and DPO at the default rate"
    )


def test_the_report_averages_over_prompts_and_seeds(tmp_path: Path) -> None:
    for seed in range(2):
        for arm, gain in (("MS", 0.2), ("DPO", 0.0)):
            rewards = [gain + 0.1 * seed, gain + 0.3 + 0.1 * seed]
            write_json(tmp_path / f"run-{arm}-s{seed}.json", run(arm, seed, (0.1, rewards), (0.2, rewards)))
    found = json.loads(json.dumps(report(study(), tmp_path)))
    by_arm = {each["arm"]: each for each in found["arms"]}
    assert by_arm["MS"]["points"][-1]["reward"] == pytest.approx(fmean([0.2, 0.5, 0.3, 0.6]), abs=1e-4)
    assert by_arm["MS"]["points"][-1]["reward sd"] == pytest.approx(0.0707, abs=1e-4)
    assert found["MS minus"]["DPO"]["at equal KL"] == pytest.approx(0.2)


@pytest.mark.parametrize("done", [[("DPO", 0)], [("MS", 1), ("DPO", 0)]])
def test_arms_without_a_common_seed_are_not_compared(tmp_path: Path, done: list[tuple[str, int]]) -> None:
    for arm, seed in done:
        write_json(tmp_path / f"run-{arm}-s{seed}.json", run(arm, seed, (0.1, [0.5]), (0.2, [0.5])))
    found = report(study(), tmp_path)
    assert len(found["arms"]) == len(done) and found["MS minus"] == {"DPO": {"seeds": 0, "p": None}}
