"""The objective of preference training as a pure function from log-probabilities of responses to losses and figures.

Legend: R responses of a batch, prompt after prompt; Q prompts; K responses of one prompt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

import torch
from torch import Tensor

from train.preference.losses import (
    dpo_loss,
    ipo_loss,
    lambda_loss,
    mode_seeking_loss,
    nca_loss,
    policy_log_shares,
    rloo_loss,
)

Method = Literal["ms", "dpo", "ipo", "lambda", "nca", "rloo"]
LOSSES = {
    "ms": mode_seeking_loss,
    "dpo": dpo_loss,
    "ipo": ipo_loss,
    "lambda": lambda_loss,
    "nca": nca_loss,
    "rloo": rloo_loss,
}


@dataclass(frozen=True)
class Objective:
    """A loss of the family (losses.py) with β_π (IPO's τ) and β_r."""

    method: Method
    beta: float
    beta_reward: float


def prompt_losses(
    objective: Objective, logps_R: Tensor, reference_R: Tensor, rewards_R: Tensor, sizes: Sequence[int]
) -> tuple[Tensor, list[dict[str, float]]]:
    """(losses_Q of the Q prompts, the figures of each); `sizes` are their K, which may differ."""
    log_ratios_R = logps_R.float() - reference_R
    losses: list[Tensor] = []
    figures: list[dict[str, float]] = []
    parts = (torch.split(each, list(sizes)) for each in (log_ratios_R, rewards_R, logps_R.detach()))
    loss_of = LOSSES[objective.method]
    for log_ratios_K, rewards_K, logps_K in zip(*parts, strict=True):
        losses.append(loss_of(log_ratios_K[None], rewards_K[None], objective.beta, objective.beta_reward))
        figures.append(group_figures(log_ratios_K.detach(), rewards_K, logps_K, objective.beta))
    return torch.cat(losses), figures


def group_figures(log_ratios_K: Tensor, rewards_K: Tensor, logps_K: Tensor, beta: float) -> dict[str, float]:
    """The metrics of one prompt, with the names and definitions of TRL's DPOTrainer: log π(y) and rewards β Δ.

    Among K responses the best-rewarded one is `chosen` and the worst `rejected`. `rewards/accuracies` is `ranking_accuracy`, omitted if that is None.
    Two metrics are not TRL's: `shares/chosen`, p_f (losses.py) of the best-rewarded response, and `shares/entropy`, the entropy of p_f divided by log K.
    """
    shares_K = policy_log_shares(log_ratios_K[None], beta)[0]
    implicit_K = beta * log_ratios_K
    best, worst = int(rewards_K.argmax()), int(rewards_K.argmin())
    entropy = -(shares_K.exp() * shares_K).sum() / torch.log(torch.tensor(float(len(shares_K))))
    figures = {
        "logps/chosen": logps_K[best].item(),
        "logps/rejected": logps_K[worst].item(),
        "rewards/chosen": implicit_K[best].item(),
        "rewards/rejected": implicit_K[worst].item(),
        "rewards/margins": (implicit_K[best] - implicit_K[worst]).item(),
        "shares/chosen": shares_K[best].exp().item(),
        "shares/entropy": entropy.item(),
    }
    accuracy = ranking_accuracy(log_ratios_K, rewards_K)
    return figures if accuracy is None else figures | {"rewards/accuracies": accuracy}


def ranking_accuracy(log_ratios_K: Tensor, rewards_K: Tensor) -> float | None:
    """Of the pairs of responses with different rewards, the share in which the better-rewarded one has the higher log-ratio; None if all rewards are equal.

    Equal log-ratios count as wrong, so an unchanged policy has accuracy 0, as in TRL's `rewards/accuracies` and `eval compare` for K = 2.

    >>> rewards = torch.tensor([1.0, 0.5, 0.0])
    >>> [ranking_accuracy(torch.tensor(ratios), rewards) for ratios in ([0.3, 0.2, 0.1], [0.1, 0.3, 0.0], [0.0, 0.0, 0.0])]
    [1.0, 0.6666666666666666, 0.0]
    """
    better_KK = rewards_K[:, None] > rewards_K[None, :]
    if not better_KK.any():
        return None
    higher_KK = log_ratios_K[:, None] > log_ratios_K[None, :]
    return int((higher_KK & better_KK).sum()) / int(better_KK.sum())


def mean_figures(figures: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each figure over the prompts that have it.

    >>> mean_figures([{"rewards/accuracies": 1.0, "rewards/margins": 0.5}, {"rewards/margins": 0.7}])
    {'rewards/accuracies': 1.0, 'rewards/margins': 0.6}
    """
    names = dict.fromkeys(name for each in figures for name in each)
    return {name: fmean(each[name] for each in figures if name in each) for name in names}
