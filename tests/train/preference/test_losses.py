"""MS and DPO compared with hand-worked numbers and closed forms for pairs; and their symmetries."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.train.pair_losses import pair_mode_seeking_loss
from train.preference.groups import hard_label
from train.preference.losses import dpo_loss, mode_seeking_loss

Loss = Callable[[Tensor, Tensor, float, float], Tensor]
LOSSES = pytest.mark.parametrize("loss", [mode_seeking_loss, dpo_loss])
DELTA_QK = torch.tensor([[0.7, -1.2, 0.1, 2.0], [-0.3, 0.0, 5.0, 0.4]])
REWARDS_QK = torch.tensor([[1.0, 0.2, 0.0, 0.6], [0.0, 0.9, 0.3, 0.3]])


def test_both_losses_equal_numbers_worked_by_hand() -> None:
    """Δ = (0, ln 3) gives p_f = (1/4, 3/4); r = (ln 2, 0) gives p_r = (2/3, 1/3)."""
    delta, rewards = torch.tensor([[0.0, math.log(3)]]), torch.tensor([[math.log(2), 0.0]])
    ms = 0.25 * math.log(0.25 / (2 / 3)) + 0.75 * math.log(0.75 / (1 / 3))
    dpo = -(2 / 3) * math.log(0.25) - (1 / 3) * math.log(0.75)
    assert mode_seeking_loss(delta, rewards, 1.0, 1.0).item() == pytest.approx(ms, abs=1e-6)
    assert dpo_loss(delta, rewards, 1.0, 1.0).item() == pytest.approx(dpo, abs=1e-6)
    assert ms == pytest.approx(0.3630, abs=1e-4)
    assert dpo == pytest.approx(1.0201, abs=1e-4)


def test_mode_seeking_loss_is_zero_at_the_target() -> None:
    """Δ = r / (β_π β_r) makes p_f = p_r: only the product of the betas matters."""
    delta = REWARDS_QK / (0.5 * 0.2)
    assert mode_seeking_loss(delta, REWARDS_QK, 0.5, 0.2).abs().max() < 1e-5


@LOSSES
def test_a_constant_added_to_the_log_ratios_or_rewards_of_a_prompt_leaves_the_loss_unchanged(loss: Loss) -> None:
    before = loss(DELTA_QK, REWARDS_QK, 0.5, 0.3)
    assert torch.allclose(loss(DELTA_QK + 3.0, REWARDS_QK, 0.5, 0.3), before, atol=1e-5)
    assert torch.allclose(loss(DELTA_QK, REWARDS_QK - 2.0, 0.5, 0.3), before, atol=1e-5)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 0.4])
def test_the_mode_seeking_loss_of_pairs_is_the_general_loss_for_two_responses(epsilon: float) -> None:
    pairs_Q2 = DELTA_QK[:, :2]
    rewards_2 = torch.tensor([math.log(1 - epsilon), math.log(epsilon)]) * 0.7
    general = mode_seeking_loss(pairs_Q2, rewards_2.expand(2, 2), 0.5, 0.7)
    assert torch.allclose(pair_mode_seeking_loss(pairs_Q2, 0.5, epsilon), general, atol=1e-6)


def test_dpo_with_two_responses_and_a_hard_label_is_minus_log_sigmoid() -> None:
    pairs_Q2 = DELTA_QK[:, :2]
    general = dpo_loss(pairs_Q2, torch.tensor([[1.0, 0.0]]).expand(2, 2), 0.5, 1e-3)
    expected = [-math.log(1 / (1 + math.exp(-0.5 * (c - r)))) for c, r in pairs_Q2.tolist()]
    assert general.tolist() == pytest.approx(expected, abs=1e-6)


@LOSSES
def test_half_precision_is_computed_in_float32(loss: Loss) -> None:
    delta, rewards = DELTA_QK.bfloat16(), REWARDS_QK.bfloat16()
    low = loss(delta, rewards, 0.5, 0.3)
    assert low.dtype == torch.float32
    assert torch.equal(low, loss(delta.float(), rewards.float(), 0.5, 0.3))


@LOSSES
def test_inputs_are_left_unchanged(loss: Loss) -> None:
    delta, rewards = DELTA_QK.clone(), REWARDS_QK.clone()
    loss(delta, rewards, 0.5, 0.3)
    assert torch.equal(delta, DELTA_QK) and torch.equal(rewards, REWARDS_QK)


def test_the_losses_of_a_policy_equal_to_its_reference_match_the_closed_form() -> None:
    """Δ = 0: DPO is ln 2; mode-seeking is −ln 2 − ½ ln(ε (1 − ε))."""
    zero_Q2 = torch.zeros(1, 2)
    assert dpo_loss(zero_Q2, torch.tensor([hard_label(0.0)]), 0.5, 1.0).item() == pytest.approx(math.log(2), abs=1e-6)
    expected = -math.log(2) - 0.5 * math.log(0.01 * 0.99)
    found = mode_seeking_loss(zero_Q2, torch.tensor([hard_label(0.01)]), 0.5, 1.0).item()
    assert found == pytest.approx(expected, abs=1e-5)
