"""Reward at equal KL, on runs whose frontiers are worked out by hand."""

from dataclasses import replace
from pathlib import Path

import pytest

from eval.alignment.frontier import (
    align,
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
from eval.alignment.measure import MeasuredRun, PromptFigures
from eval.alignment.sample import SamplingSettings
from train.run.record import RunRecord

DRAWING = SamplingSettings(4, 20, 0)


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


def test_runs_on_other_pairs_or_by_another_loss_are_other_systems() -> None:
    def named(stage: str, label_smoothing: float | None = None, **settings: object) -> str:
        one = run(stage, 2, 0, 1.0, 0.5)
        record = replace(one.record, label_smoothing=label_smoothing, settings={"seed": 0, **settings})
        return replace(one, record=record).system

    assert named("dpo", loss="sigmoid", best_against_worst=False) == "DPO K = 2"
    assert named("dpo", best_against_worst=True) == "DPO K = 2, best against worst"
    assert named("ms", 0.001, best_against_worst=True) == "MS K = 2, ε = 0.001, best against worst"
    assert named("dpo", loss="ipo") == "IPO K = 2"


def test_a_frontier_is_linear_between_its_runs_and_starts_at_the_reference() -> None:
    assert frontier_at(MS[:2], REFERENCE, 0.0) == REFERENCE
    assert frontier_at(MS[:2], REFERENCE, 0.5) == pytest.approx([0.4, 0.6])
    assert frontier_at(MS[:2], REFERENCE, 1.0) == pytest.approx([0.6, 0.8])
    assert frontier_at(MS[:2], REFERENCE, 2.0) == pytest.approx([0.7, 0.9])
    assert frontier_at(MS[:2][::-1], REFERENCE, 2.0) == pytest.approx([0.7, 0.9]), "the order of runs has no say"
    assert rewards_by_seed(MS, REFERENCE, 2.0) == [pytest.approx([0.7, 0.9]), [1.0, 1.0]]


def test_systems_are_read_off_where_all_of_them_reach() -> None:
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
    assert interval.low < -0.6, "the worse seed of DPO alone, drawn twice, against all that MS may draw"


def test_the_verdict_says_above_below_or_not_told_apart() -> None:
    many = [0.2 + 0.001 * n for n in range(50)]
    ms = run("ms", 64, 0, 2.0, *[value + 0.5 for value in many])
    worse = run("dpo", 2, 0, 2.0, *[value + 0.1 for value in many])
    same = run("ms", 2, 0, 2.0, *[value + 0.5 + (0.01 if n % 2 else -0.01) for n, value in enumerate(many)])
    reference = [figures(value, 0.0) for value in many]
    assert verdict(align([ms, worse, same], reference, DRAWING)) == (
        "At KL 2, MS K = 64 is above DPO K = 2, not distinguishable from MS K = 2."
    )
    assert "below MS K = 64" in verdict(align([worse, ms], reference, DRAWING))
    stays = replace(ms, figures=tuple(figures(value, 0.0) for value in many))
    assert "nothing to compare" in verdict(align([stays, worse], reference, DRAWING))


def test_the_report_is_written_with_all_that_a_claim_must_name(tmp_path: Path) -> None:
    found = align([*MS, *DPO], [figures(value, 0.0) for value in REFERENCE], DRAWING)
    write_alignment(found, tmp_path / "out")
    assert (tmp_path / "out" / "frontier.png").read_bytes().startswith(b"\x89PNG")
    text = (tmp_path / "out" / "alignment.md").read_text(encoding="utf-8")
    for word in ("MS K = 64", "DPO K = 2", "β\\_π", "2 held-out prompts, 4 samples", "difference"):
        assert word in text, word
    assert len(runs_table(found).rows) == 6 and len(equal_table(found).rows) == 8
    assert alignment_json(found)["equal_kl"][0]["system"] == "MS K = 64"
