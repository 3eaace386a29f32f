"""The world of `modegraph lab modes`: outcomes on a line, a target with two modes, policies that can have only one.

Legend: X outcomes; P = 2 parameters of a policy (μ, log σ). `...` are leading axes of any size (seeds, starts).
Log-probabilities are in nats, float64. β_π is 1 throughout: the K-response losses tend to the KL divergences between π
and π* as K grows only when p_f = softmax(β_π Δ) weighs a response by π/π_ref itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graph.shared.errors import UserError

BETA_POLICY = 1.0
BETA_REWARD = 0.12
SMALLEST_BETA, LARGEST_BETA = 0.01, 10.0
REFERENCE = (0.0, 2.5)


@dataclass(frozen=True)
class Line:
    """The outcomes, log π_ref and the reward of each, and the β_r that softens the rewards into p_r = softmax(r / β_r)."""

    points_X: Tensor
    log_reference_X: Tensor
    rewards_X: Tensor
    beta_reward: float


def two_modes(beta_reward: float = BETA_REWARD) -> Line:
    """41 outcomes in [−4, 4], a wide reference, a high narrow reward at 2 and a lower wide one at −1.6.

    UserError for a β_r outside [0.01, 10], where float32 losses or the contrast of the two modes would be lost.
    """
    if not SMALLEST_BETA <= beta_reward <= LARGEST_BETA:
        expected = f"β_r from {SMALLEST_BETA} to {LARGEST_BETA:g}"
        raise UserError(
            f"--beta-reward {beta_reward:g}", expected, f"change it; the two modes need about {BETA_REWARD}"
        )
    points_X = torch.linspace(-4.0, 4.0, 41, dtype=torch.float64)
    rewards_X = bump(points_X, 2.0, 0.35) + 0.85 * bump(points_X, -1.6, 0.6)
    return Line(points_X, torch.log_softmax(bump(points_X, *REFERENCE).log(), dim=-1), rewards_X, beta_reward)


def bump(points_X: Tensor, centre: float, width: float) -> Tensor:
    """exp(−½ ((x − centre) / width)²), of height 1."""
    return torch.exp(-0.5 * ((points_X - centre) / width) ** 2)


def log_target(line: Line) -> Tensor:
    """log π*, π* ∝ π_ref exp(r / (β_r β_π)): the optimum of every soft or exact objective for a free policy. float64[X]."""
    return torch.log_softmax(line.log_reference_X + line.rewards_X / (line.beta_reward * BETA_POLICY), dim=-1)


def log_gaussian(points_X: Tensor, parameters_P: Tensor) -> Tensor:
    """The restricted policy class: log π, π ∝ exp(−½ ((x − μ) / σ)²) on the outcomes. [..., P] to [..., X].

    >>> log_gaussian(torch.tensor([-1.0, 0.0, 1.0]), torch.tensor([0.0, 0.0])).exp()
    tensor([0.2741, 0.4519, 0.2741])
    """
    mean_1, log_width_1 = parameters_P[..., :1], parameters_P[..., 1:]
    return torch.log_softmax(-0.5 * ((points_X - mean_1) / log_width_1.exp()) ** 2, dim=-1)


def kl(log_from_X: Tensor, log_to_X: Tensor) -> Tensor:
    """KL(from ‖ to) = Σ_x from_x (log from_x − log to_x), over the last axis; leading axes broadcast.

    >>> kl(torch.tensor([0.5, 0.5]).log(), torch.tensor([0.25, 0.75]).log())
    tensor(0.1438)
    """
    return (log_from_X.exp() * (log_from_X - log_to_X)).sum(dim=-1)
