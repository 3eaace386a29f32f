"""Reward at equal KL, on runs whose frontiers were computed by hand."""

from dataclasses import replace
from pathlib import Path

import pytest

from eval.alignment.frontier import (
    Alignment,
    alignment_json,
    equal_kl,
    equal_table,
    frontier_at,
    kl_grid,
    rewards_by_seed,
    runs_table,
    verdict,
    write_alignment,
)
from eval.alignment.measure import ConstantAnswer, MeasuredRun, PromptFigures
from eval.alignment.sample import SamplingSettings
from graph.errors import UserError
from train.run.record import RunRecord

SAMPLING = SamplingSettings(4, 20, 0)


def figures(reward: float, kl: float) -> PromptFigures:
    return PromptFigures(reward, kl, 10.0, 5.0, 0.5, 1.0, 0.75, 0.25, 0.6)


def run(stage: str, k: int, seed: int, kl: float, *rewards: float, beta_reward: float = 0.5) -> MeasuredRun:
    record = RunRecord(
        stage=stage,  # type: ignore[arg-type]
        base_model="sft",
        base_weights="",
        data="data",
        beta=0.1,
        beta_reward=beta_reward,
        label_smoothing=None,
        responses_per_prompt=k,
        settings={"seed": seed},
        metrics={},
        train_seconds=3.0,
        device="cpu",
        versions={},
    )
    name = f"{stage}-{k}-{seed}-{beta_reward:g}"
    return MeasuredRun(Path(name), record, tuple(figures(reward, kl) for reward in rewards))


REFERENCE = [0.2, 0.4]
MS = [run("ms", 64, 0, 1.0, 0.6, 0.8), run("ms", 64, 0, 3.0, 0.8, 1.0), run("ms", 64, 1, 2.0, 1.0, 1.0)]
DPO = [run("dpo", 2, 0, 4.0, 0.6, 0.8), run("dpo", 2, 1, 2.0, 0.2, 0.4)]


def test_runs_on_other_pairs_or_with_another_loss_are_different_systems() -> None:
    def name_of(stage: str, label_smoothing: float | None = None, **settings: object) -> str:
        one = run(stage, 2, 0, 1.0, 0.5)
        record = replace(one.record, label_smoothing=label_smoothing, settings={"seed": 0, **settings})
        return replace(one, record=record).system

    assert name_of("dpo", loss="sigmoid", best_against_worst=False) == "DPO K = 2"
    assert name_of("dpo", best_against_worst=True) == "DPO K = 2, best against worst"
    assert name_of("ms", 0.001, best_against_worst=True) == "MS K = 2, ε = 0.001, best against worst"
    assert name_of("dpo", loss="ipo") == "IPO K = 2"
    assert name_of("dpo", loss="ipo", trainer="trl") == "IPO per token K = 2"
    assert name_of("dpo", 0.1, loss="sigmoid") == "DPO K = 2, ε = 0.1"
    assert name_of("dpo", loss="lambda") == "LiPO-λ K = 2"


def test_a_frontier_is_linear_between_its_runs_and_starts_at_the_reference() -> None:
    assert frontier_at(MS[:2], REFERENCE, 0.0) == REFERENCE
    assert frontier_at(MS[:2], REFERENCE, 0.5) == pytest.approx([0.4, 0.6])
    assert frontier_at(MS[:2], REFERENCE, 1.0) == pytest.approx([0.6, 0.8])
    assert frontier_at(MS[:2], REFERENCE, 2.0) == pytest.approx([0.7, 0.9])
    assert frontier_at(MS[:2][::-1], REFERENCE, 2.0) == pytest.approx([0.7, 0.9]), "the order of runs should not matter"
    assert rewards_by_seed(MS, REFERENCE, 2.0) == {0: pytest.approx([0.7, 0.9]), 1: [1.0, 1.0]}


def test_systems_are_compared_only_at_kls_that_all_of_them_reach() -> None:
    assert kl_grid([*MS, *DPO]) == pytest.approx([0.5, 1.0, 1.5, 2.0])
    assert kl_grid([*MS, run("dpo", 2, 0, -0.01, 0.2, 0.4)]) == []
    found = equal_kl([*MS, *DPO], REFERENCE)
    assert [at.system for at in found[:2]] == ["MS K = 64", "DPO K = 2"]
    assert found[-2].by_seed == pytest.approx((0.8, 1.0)) and found[-2].reward == pytest.approx(0.9)
    last = found[-1]
    assert (last.kl, last.reward) == (2.0, pytest.approx((0.4 + 0.6 + 0.2 + 0.4) / 4))
    assert last.difference is not None and found[-2].difference is None
    interval = last.difference.interval
    assert interval.mean == pytest.approx(last.reward - 0.9) and interval.low <= interval.mean <= interval.high
    assert interval.low < -0.6, "a resample may contain seed 1, with a difference of −0.7, twice"
    assert last.difference.by_seed == pytest.approx((-0.3, -0.7)) and last.difference.p == 0.5


PROMPTS = [0.2 + 0.001 * n for n in range(20)]


def system(stage: str, k: int, gain: float, seeds: int = 6, kl: float = 2.0) -> list[MeasuredRun]:
    """Runs of one system whose rewards exceed those of the reference by `gain`, plus or minus 0.004 by seed."""
    return [
        run(stage, k, seed, kl, *[value + gain + 0.004 * (-1) ** seed for value in PROMPTS]) for seed in range(seeds)
    ]


def test_the_verdict_says_above_below_equal_or_not_distinguishable() -> None:
    reference = [figures(value, 0.0) for value in PROMPTS]
    ms, worse = system("ms", 64, 0.5), system("dpo", 2, 0.1)
    same = [
        replace(each, figures=tuple(figures(one.reward + 0.01 * (-1) ** n, 2.0) for one in each.figures))
        for n, each in enumerate(system("ms", 2, 0.5))
    ]
    assert verdict(Alignment([*ms, *worse], reference, SAMPLING)) == "At KL 2, MS K = 64 is above DPO K = 2."
    assert "below MS K = 64" in verdict(Alignment([*worse, *ms], reference, SAMPLING))
    assert "not distinguishable from MS K = 2" in verdict(Alignment([*ms, *same], reference, SAMPLING))
    equal = Alignment([*ms, *same], reference, SAMPLING, margin=0.03)
    assert verdict(equal) == "At KL 2, MS K = 64 is equal (within ±0.03) to MS K = 2."
    assert equal_table(equal).header[-1] == "equal, p" and "two one-sided t-tests" in equal_table(equal).note
    assert "not distinguishable" in verdict(Alignment([*ms, *same], reference, SAMPLING, margin=0.002))


def test_one_seed_is_never_enough_for_a_verdict() -> None:
    """However large the difference, the seed alone may have caused it."""
    reference = [figures(value, 0.0) for value in PROMPTS]
    found = Alignment(
        [*system("ms", 64, 0.9, seeds=1), *system("dpo", 2, 0.1, seeds=1)], reference, SAMPLING, margin=0.03
    )
    assert "not distinguishable from DPO K = 2" in verdict(found)
    assert found.equal[-1].difference is not None and found.equal[-1].difference.p == 1.0
    assert "1 seed gives a p of at least 1" in equal_table(found).note


def test_a_run_that_stays_at_the_reference_cannot_be_compared() -> None:
    reference = [figures(value, 0.0) for value in PROMPTS]
    unmoved = system("ms", 64, 0.0, kl=0.0)
    assert "cannot be compared at equal KL" in verdict(
        Alignment([*unmoved, *system("dpo", 2, 0.1)], reference, SAMPLING)
    )


def test_an_unpaired_seed_is_refused_with_an_error_that_names_it() -> None:
    with pytest.raises(UserError, match="seed 2 is unpaired: DPO K = 2 has no run with it"):
        equal_kl([*system("ms", 64, 0.5, seeds=3), *system("dpo", 2, 0.1, seeds=2)], PROMPTS)


def test_constant_answers_are_listed_with_the_runs() -> None:
    constant = ConstantAnswer("yes", 0.55, 0.4, 1.0, 0.9, 6.0)
    found = Alignment([*MS, *DPO], [figures(value, 0.0) for value in REFERENCE], SAMPLING, [constant])
    row = dict(zip(runs_table(found).header, runs_table(found).rows[-1], strict=True))
    assert (row["run"], row["reward"], row["KL"], row["correct"], row["cited"]) == (
        "always yes",
        "0.5500",
        "–",
        "0.400",
        "0.900",
    )
    assert alignment_json(found)["constants"][0]["answer"] == "yes"


def test_the_report_states_the_systems_the_sampling_and_the_differences(tmp_path: Path) -> None:
    found = Alignment([*MS, *DPO], [figures(value, 0.0) for value in REFERENCE], SAMPLING)
    write_alignment(found, tmp_path / "out")
    assert (tmp_path / "out" / "frontier.png").read_bytes().startswith(b"\x89PNG")
    text = (tmp_path / "out" / "alignment.md").read_text(encoding="utf-8")
    for word in ("MS K = 64", "DPO K = 2", "β\\_π", "2 held-out prompts, 4 samples", "difference"):
        assert word in text, word
    assert len(runs_table(found).rows) == 6 and len(equal_table(found).rows) == 8
    assert alignment_json(found)["equal_kl"][0]["system"] == "MS K = 64"
