"""benchmarks/experiments/two_modes.py: the losses against the exact divergences, closed forms of both optima, and the committed figures."""

import json
import math
import sys

import pytest
import torch

from benchmarks.experiments import two_modes as script
from benchmarks.experiments.two_modes import (
    DPO_PAIRS,
    FORWARD,
    OBJECTIVES,
    REVERSE,
    STARTS,
    Line,
    Method,
    Objective,
    best_starts,
    draw_groups,
    exact_losses,
    fit_objective,
    group_losses,
    kl,
    log_gaussian,
    log_target,
    modes_headline,
    modes_json,
    modes_table,
    one_thread,
    run_modes,
    sampled_losses,
    two_modes,
    write_modes,
)
from eval.tables import as_text
from graph.errors import UserError


def three_outcomes() -> Line:
    """π_ref = (1/2, 1/4, 1/4), r = β_r (0, ln 2, ln 4): π* ∝ (1/2, 1/2, 1), so π* = (1/4, 1/4, 1/2)."""
    reference_X = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
    rewards_X = 0.3 * torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64).log()
    return Line(torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64), reference_X.log(), rewards_X, 0.3)


GROUP_LIKE_REFERENCE = torch.tensor([[[0, 0, 1, 2]]])  # one seed, one group of K = 4 with the proportions of π_ref
TARGET = torch.tensor([0.25, 0.25, 0.5], dtype=torch.float64)  # π* of three_outcomes()
POLICY = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)


def test_the_target_matches_a_calculation_by_hand():
    assert log_target(three_outcomes()).exp().tolist() == pytest.approx([0.25, 0.25, 0.5])


def test_the_divergences_match_a_calculation_by_hand():
    forward = 0.25 * math.log(0.25 / 0.6) + 0.25 * math.log(0.25 / 0.3) + 0.5 * math.log(0.5 / 0.1)
    reverse = 0.6 * math.log(0.6 / 0.25) + 0.3 * math.log(0.3 / 0.25) + 0.1 * math.log(0.1 / 0.5)
    log_policy_X = POLICY.log()
    assert exact_losses(three_outcomes(), FORWARD)(log_policy_X).item() == pytest.approx(forward)
    assert exact_losses(three_outcomes(), REVERSE)(log_policy_X).item() == pytest.approx(reverse)


def gradient_of(objective: Objective, groups_SGK: torch.Tensor | None, line: Line, policy_X: torch.Tensor):
    """The loss and its gradient with respect to the logits of a free policy over the outcomes."""
    logits_X = policy_X.log().requires_grad_()
    log_policy_X = torch.log_softmax(logits_X, dim=-1)
    if groups_SGK is None:
        loss = exact_losses(line, objective)(log_policy_X)
    else:
        loss = group_losses(line, objective, log_policy_X.view(1, 1, -1), groups_SGK).squeeze()
    (gradient_X,) = torch.autograd.grad(loss, logits_X)
    return loss.item(), gradient_X


@pytest.mark.parametrize(("method", "exact"), [("MS", REVERSE), ("DPO", FORWARD)])
def test_a_group_in_proportion_to_the_reference_has_the_gradient_of_the_exact_divergence(method: Method, exact):
    """In such a group, p_f is π and p_r is π*, divided among repeated outcomes: with β_π = 1, this is the limit of large K."""
    sampled, sampled_X = gradient_of(Objective(method, 4), GROUP_LIKE_REFERENCE, three_outcomes(), POLICY)
    direct, direct_X = gradient_of(exact, None, three_outcomes(), POLICY)
    assert torch.allclose(sampled_X, direct_X, atol=1e-6)
    assert direct_X.abs().max() > 0.05
    # p_r over the four responses is (1/8, 1/8, 1/4, 1/2): DPO's loss is the cross-entropy of p_r and p_f, not their KL.
    by_hand = {"MS": direct, "DPO": -0.25 * math.log(0.3) - 0.25 * math.log(0.3) - 0.5 * math.log(0.1)}
    assert sampled == pytest.approx(by_hand[method], abs=1e-6)


@pytest.mark.parametrize("support", [[0, 1], [1, 2], [0, 2]])
def test_on_distinct_responses_ms_is_the_reverse_kl_of_the_ratios_to_the_reference(support):
    """A group of distinct responses: p_f ∝ π/π_ref and p_r ∝ π*/π_ref, both normalised over the group."""
    line, group_SGK = three_outcomes(), torch.tensor([[support]])
    _, sampled_X = gradient_of(Objective("MS", 2), group_SGK, line, POLICY)
    logits_X = POLICY.log().requires_grad_()
    ratios_X = torch.log_softmax(logits_X, dim=-1) - line.log_reference_X
    policy_K = torch.log_softmax(ratios_X[support], dim=-1)
    target_K = torch.log_softmax((log_target(line) - line.log_reference_X)[support], dim=-1)
    (direct_X,) = torch.autograd.grad(kl(policy_K, target_K), logits_X)
    assert torch.allclose(sampled_X, direct_X, atol=1e-6)


@pytest.mark.parametrize("method", ["MS", "DPO"])
def test_the_gradient_is_zero_at_the_target_with_and_without_repeated_responses(method: Method):
    for group in ([[0, 1]], [[2, 2]], [[0, 1, 2]], [[0, 0, 1, 2]]):
        _, gradient_X = gradient_of(Objective(method, len(group[0])), torch.tensor([group]), three_outcomes(), TARGET)
        assert gradient_X.abs().max() < 1e-6


def test_hard_pairs_have_the_higher_reward_first_and_the_loss_computed_by_hand():
    line = two_modes()
    pairs_GK = draw_groups(line, DPO_PAIRS, 2000, torch.Generator().manual_seed(0))
    rewards_GK = line.rewards_X[pairs_GK]
    assert pairs_GK.shape == (1000, 2)
    assert (rewards_GK[:, 0] >= rewards_GK[:, 1]).all()
    # By hand on three outcomes: Δ = (ln 1.2, ln 1.2, ln 0.4), the pair (2, 0) has p_f = (1/4, 3/4).
    losses = {
        objective: group_losses(
            three_outcomes(), objective, POLICY.log().view(1, 1, -1), torch.tensor([[[2, 0]]])
        ).item()
        for objective in (DPO_PAIRS, Objective("MS", 2, 0.1))
    }
    by_hand = [-math.log(0.25), 0.25 * math.log(0.25 / 0.9) + 0.75 * math.log(0.75 / 0.1)]
    assert list(losses.values()) == pytest.approx(by_hand, abs=1e-6)


def test_responses_are_sampled_from_the_reference():
    line = two_modes()
    sampled_GK = draw_groups(line, Objective("MS", 4), 200_000, torch.Generator().manual_seed(1))
    shares_X = torch.bincount(sampled_GK.flatten(), minlength=41) / sampled_GK.numel()
    assert sampled_GK.shape == (50_000, 4)
    assert (shares_X - line.log_reference_X.exp()).abs().max() < 0.002  # about 4 standard errors


def test_the_sampled_loss_of_pairs_tends_to_the_sum_over_all_pairs():
    """The exact loss for K = 2 is the sum over 41² ordered pairs, weighted by π_ref(i) π_ref(j)."""
    line, objective = two_modes(), Objective("MS", 2)
    log_policy_STX = log_gaussian(line.points_X, torch.tensor([[[-0.5, 0.2]]], dtype=torch.float64))
    every_pair = torch.cartesian_prod(torch.arange(41), torch.arange(41))
    each = torch.stack([group_losses(line, objective, log_policy_STX, pair.view(1, 1, 2)) for pair in every_pair])
    weights = line.log_reference_X.exp()[every_pair].prod(dim=1)
    exact = (each.flatten() * weights).sum().item()
    sampled = sampled_losses(line, objective, [torch.Generator().manual_seed(3)], 400_000)(log_policy_STX)
    assert sampled.item() == pytest.approx(exact, rel=0.02)


def test_the_forward_optimum_has_the_targets_moments_and_is_stationary_for_dpo():
    """Discretised Gaussians are an exponential family in (x, x²): KL(π*‖π) is smallest where both moments agree."""
    line = two_modes()
    policy = fit_objective(line, FORWARD, 1, 1).policies[0]
    parameters_P = torch.tensor([policy.mean, math.log(policy.width)], dtype=torch.float64, requires_grad=True)
    log_policy_X = log_gaussian(line.points_X, parameters_P)
    for power in (1, 2):
        moment, target_moment = (
            (each.exp() * line.points_X**power).sum().item() for each in (log_policy_X, log_target(line))
        )
        assert moment == pytest.approx(target_moment, abs=1e-4)
    # With a flat reference, a group of all outcomes is in proportion to it, so DPO's gradient is that of the forward KL.
    flat = Line(line.points_X, torch.full((41,), -math.log(41), dtype=torch.float64), line.rewards_X, line.beta_reward)
    optimum = fit_objective(flat, FORWARD, 1, 1).policies[0]
    parameters_P = torch.tensor([optimum.mean, math.log(optimum.width)], dtype=torch.float64, requires_grad=True)
    sizes = {}
    for method in ("DPO", "MS"):
        log_policy_STX = log_gaussian(flat.points_X, parameters_P).view(1, 1, -1)
        loss = group_losses(flat, Objective(method, 41), log_policy_STX, torch.arange(41).view(1, 1, 41))
        sizes[method] = torch.autograd.grad(loss.sum(), parameters_P)[0].abs().max().item()
    assert sizes["DPO"] < 1e-4 and sizes["MS"] > 0.1


@pytest.mark.parametrize("objective", [REVERSE, FORWARD, Objective("MS", 2), Objective("MS", 16), Objective("DPO", 8)])
def test_an_objective_finds_a_target_that_the_policy_can_match(objective):
    """r = −½ β_r (x − 1)² gives the precision 1/2.5² + 1 = 1.16: μ = 1/1.16, σ = 1/√1.16."""
    line = two_modes(0.2)
    quadratic = Line(line.points_X, line.log_reference_X, -0.5 * 0.2 * (line.points_X - 1) ** 2, 0.2)
    policy = fit_objective(quadratic, objective, 1, 150).policies[0]
    assert policy.mean == pytest.approx(1 / 1.16, abs=0.01)
    assert policy.width == pytest.approx(1 / math.sqrt(1.16), abs=0.01)
    assert policy.reverse_kl == pytest.approx(0, abs=1e-3)


def test_the_start_with_the_lowest_loss_is_chosen_and_the_kl_reached_from_the_reference_is_reported():
    line = two_modes()
    parameters_STP = torch.tensor([[[0.0, math.log(2.5)], [2.0, -2.0], [-1.6, -1.0], [0, 0], [1, 0], [3, 0]]]).double()
    assert parameters_STP.shape[1] == len(STARTS)
    found = best_starts(line, REVERSE, parameters_STP, torch.tensor([[3.0, 1.0, 0.5, 0.5, 2.0, 2.0]])).policies[0]
    assert (found.mean, found.width) == pytest.approx((-1.6, math.exp(-1)))
    kl_from_reference = kl(line.log_reference_X, log_target(line)).item()
    assert found.reverse_kl_from_reference == pytest.approx(kl_from_reference)


def test_the_result_of_a_seed_does_not_depend_on_the_number_of_seeds():
    line, objective = two_modes(), Objective("MS", 4)
    alone, among = (fit_objective(line, objective, seeds, 20).policies for seeds in (1, 3))
    assert alone[0] == among[0]
    assert len(among) == 3 and among[0] != among[1]


@pytest.mark.parametrize("beta", [0.0, -1.0, 0.009, 11.0, math.nan, math.inf])
def test_a_beta_out_of_range_is_refused(beta):
    with pytest.raises(UserError, match=r"--beta-reward .*0\.01 to 10"):
        two_modes(beta)


SHORT_OBJECTIVES = (
    REVERSE,
    FORWARD,
    *(Objective("MS", size) for size in (2, 16, 64)),
    *(Objective("DPO", size) for size in (2, 64)),
    *(Objective("MS", 2, smoothing) for smoothing in (0.01, 0.1)),
    DPO_PAIRS,
)


@pytest.fixture(scope="module")
def short_run():
    return run_modes(two_modes(), seeds=2, steps=200, objectives=SHORT_OBJECTIVES)


def reverse_kls(experiment, *objective) -> list[float]:
    return [policy.reverse_kl for policy in experiment.fit_of(Objective(*objective)).policies]


def test_the_two_optima_match_the_committed_figures(short_run):
    (reverse,), (forward,) = (short_run.fit_of(each).policies for each in (REVERSE, FORWARD))
    assert (reverse.reverse_kl, reverse.expected_reward) == pytest.approx((0.479, 0.936), abs=1e-3)
    assert (reverse.mean, reverse.width) == pytest.approx((1.994, 0.133), abs=1e-3)
    assert reverse.reverse_kl_from_reference == pytest.approx(0.989, abs=1e-3)
    assert (forward.reverse_kl, forward.forward_kl) == pytest.approx((3.306, 1.597), abs=2e-3)


def test_a_short_run_matches_the_committed_figures(short_run):
    """MS comes within .02 nats of the reverse-KL optimum at K = 64; DPO stays above 3 at K = 2 and 64, and so does MS at K = 2."""
    assert reverse_kls(short_run, "MS", 64) == pytest.approx([0.480] * 2, abs=0.005)
    assert reverse_kls(short_run, "MS", 16) == pytest.approx([0.992] * 2, abs=0.01)
    assert reverse_kls(short_run, "MS", 2) == pytest.approx([3.12] * 2, abs=0.03)
    assert reverse_kls(short_run, "DPO", 2) == pytest.approx([3.11] * 2, abs=0.03)
    assert reverse_kls(short_run, "DPO", 64) == pytest.approx([3.27] * 2, abs=0.03)


def test_ms_on_pairs_matches_dpo_at_smoothing_0_1_and_collapses_onto_the_wrong_mode_at_0_01(short_run):
    assert reverse_kls(short_run, "MS", 2, 0.1) == pytest.approx(reverse_kls(short_run, "DPO", 2, 0.0), abs=0.05)
    for policy in short_run.fit_of(Objective("MS", 2, 0.01)).policies:
        assert policy.mean == pytest.approx(-1.6, abs=0.1)
        assert policy.width < 0.2 and 1.2 < policy.reverse_kl < 2.1


def test_the_objectives_are_distinct_and_cover_k_from_2_to_256():
    assert len(set(OBJECTIVES)) == len(OBJECTIVES) == 25
    assert {each.responses_per_prompt for each in OBJECTIVES if each.labels == "soft"} == {2**n for n in range(1, 9)}


def test_modes_are_written_as_json(short_run, tmp_path):
    out = tmp_path / "new" / "folder"
    write_modes(short_run, out)
    assert [file.name for file in out.iterdir()] == ["modes.json"]
    saved = json.loads((out / "modes.json").read_text(encoding="utf-8"))
    assert saved == modes_json(short_run)
    settings = saved["settings"]
    assert (settings["beta_reward"], settings["beta_policy"], settings["seeds"], settings["steps"]) == (
        0.12,
        1,
        [0, 1],
        200,
    )
    pair = next(each for each in saved["objectives"] if each["label_smoothing"] == 0.1)
    assert (pair["method"], pair["responses_per_prompt"], pair["labels"]) == ("MS", 2, "hard")
    first, second = pair["by_seed"]["reverse_kl"]
    assert pair["means"]["reverse_kl"] == pytest.approx((first + second) / 2)
    assert pair["standard_deviations"]["reverse_kl"] == pytest.approx(abs(first - second) / math.sqrt(2))


def test_a_short_run_has_a_headline_and_a_table(short_run):
    assert modes_headline(short_run) == (
        "Soft labels, β_r = 0.12, β_π = 1, best of 6 starts: KL(π‖π*) within 0.02 of the reverse-KL optimum, 0.479, "
        f"for every seed: MS for K = 64; DPO for no K (lowest: {min(reverse_kls(short_run, 'DPO', 2)):.2f}). "
        "From the start at π_ref, the exact reverse KL ends at 0.989."
    )
    lines = as_text(modes_table(short_run)).splitlines()
    assert len(lines) == 3 + len(SHORT_OBJECTIVES)
    assert lines[1].split()[:6] == ["objective", "labels", "K", "ε", "β_r", "β_π"]
    assert lines[3].split()[:8] == ["reverse", "KL", "exact", "–", "–", "0.12", "1", "0.479"]
    assert lines[5].split()[:6] == ["MS", "soft", "2", "–", "0.12", "1"]
    assert lines[-1].split()[:6] == ["DPO", "hard", "2", "0", "–", "1"]


def test_the_same_seed_gives_the_same_figures():
    for objective in (Objective("MS", 8), Objective("MS", 2, 0.01)):
        assert fit_objective(two_modes(), objective, 2, 5) == fit_objective(two_modes(), objective, 2, 5)


def test_the_number_of_torch_threads_is_restored_after_a_failure():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    with pytest.raises(ZeroDivisionError), one_thread():
        assert torch.get_num_threads() == 1
        _ = 1 / 0
    assert torch.get_num_threads() == 2
    torch.set_num_threads(threads)


def test_the_script_prints_one_json_object_and_writes_the_same(tmp_path, monkeypatch, capsys):
    words = ["--out", str(tmp_path), "--seeds", "1", "--steps", "2", "--beta-reward", "0.3", "--json"]
    monkeypatch.setattr(sys, "argv", ["two_modes.py", *words])
    monkeypatch.setattr(script, "EXACT_STEPS", 20)
    script.main()
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads((tmp_path / "modes.json").read_text(encoding="utf-8"))
    assert (len(found["objectives"]), found["settings"]["beta_reward"], found["settings"]["steps"]) == (25, 0.3, 2)
