"""The alignment losses, as functions of log-ratios: the trainers minimise them and eval reports them.

Legend: Q prompts, K responses to each. `log_ratios_QK` holds Δ_i = log π_θ(y_i|x) − log π_ref(y_i|x), summed over the
completion's tokens with its end token (see train/model/logps.py). Every function computes in float32 whatever the input type,
does not change its inputs, and returns one loss per prompt: float32[Q], in nats.

Source: EXO (Ji et al. 2024), used by GraphMPA as "mode-seeking" preference optimisation (§3.3, Eqs. 10-11).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import log_softmax, logsigmoid


def mode_seeking_loss(log_ratios_QK: Tensor, rewards_QK: Tensor, beta_policy: float, beta_reward: float) -> Tensor:
    """Reverse KL: Σ_i p_f,i (log p_f,i − log p_r,i) with p_f = softmax(β_π Δ), p_r = softmax(r / β_r).

    >>> mode_seeking_loss(torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, math.log(3.0)]]), 1.0, 1.0)
    tensor([0.1438])
    """
    policy_QK = policy_log_shares(log_ratios_QK, beta_policy)
    return (policy_QK.exp() * (policy_QK - reward_log_shares(rewards_QK, beta_reward))).sum(dim=-1)


def dpo_loss(log_ratios_QK: Tensor, rewards_QK: Tensor, beta_policy: float, beta_reward: float) -> Tensor:
    """Forward KL up to its constant, the entropy of p_r: −Σ_i p_r,i log p_f,i (DPO for K responses with soft labels).

    >>> dpo_loss(torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, math.log(3.0)]]), 1.0, 1.0)
    tensor([0.6931])
    """
    policy_QK = policy_log_shares(log_ratios_QK, beta_policy)
    return -(reward_log_shares(rewards_QK, beta_reward).exp() * policy_QK).sum(dim=-1)


def policy_log_shares(log_ratios_QK: Tensor, beta_policy: float) -> Tensor:
    """log p_f = log softmax(β_π Δ) over the K responses of each prompt: float32[Q, K]."""
    return log_softmax(beta_policy * log_ratios_QK.float(), dim=-1)


def reward_log_shares(rewards_QK: Tensor, beta_reward: float) -> Tensor:
    """log p_r = log softmax(r / β_r) over the K responses of each prompt: float32[Q, K]."""
    return log_softmax(rewards_QK.float() / beta_reward, dim=-1)


def pair_mode_seeking_loss(log_ratios_Q2: Tensor, beta: float, label_smoothing: float) -> Tensor:
    """KL(softmax(β Δ) ‖ (1 − ε, ε)) for (chosen, rejected): TRL's `exo_pair`, `mode_seeking_loss` at K = 2.

    >>> pair_mode_seeking_loss(torch.tensor([[0.0, 0.0]]), beta=0.5, label_smoothing=0.25)
    tensor([0.1438])
    """
    pair_rewards_2 = torch.tensor(
        [math.log1p(-label_smoothing), math.log(label_smoothing)], device=log_ratios_Q2.device
    )
    return mode_seeking_loss(log_ratios_Q2, pair_rewards_2, beta, beta_reward=1.0)


def pair_dpo_loss(log_ratios_Q2: Tensor, beta: float) -> Tensor:
    """−log σ(β (Δ_chosen − Δ_rejected)): TRL's `sigmoid`, `dpo_loss` at K = 2 with the hard label (1, 0).

    >>> pair_dpo_loss(torch.tensor([[1.0, 1.0]]), beta=0.1)
    tensor([0.6931])
    """
    chosen_Q, rejected_Q = log_ratios_Q2.float().unbind(dim=-1)
    return -logsigmoid(beta * (chosen_Q - rejected_Q))
