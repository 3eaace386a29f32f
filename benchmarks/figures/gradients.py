"""docs/figures/gradients: the gradients of the family of losses with respect to Δ, by autograd from train/preference/losses.py."""

import math

import torch
from matplotlib.figure import Figure
from torch import Tensor

from benchmarks.figures.style import BLUE, GREEN, GREY, ORANGE, PINK, SKY, style_axes
from train.preference.groups import hard_label
from train.preference.losses import LOSSES, Method

EPSILON = 0.01
PAIRS: tuple[tuple[str, Method, float, str, str], ...] = (
    ("MS, ε = .01", "ms", EPSILON, ORANGE, "-"),
    ("DPO", "dpo", 0.0, BLUE, "-"),
    ("DPO, ε = .01", "dpo", EPSILON, BLUE, ":"),
    ("IPO", "ipo", 0.0, GREEN, "--"),
    ("NCA", "nca", 0.0, PINK, "-."),
)
"""Label, loss, ε, colour and line style on pairs. λ is left out: at K = 2 it is DPO times a constant."""
GROUPS: tuple[tuple[str, Method, str, str], ...] = (
    ("MS", "ms", ORANGE, "s"),
    ("DPO, NCA", "dpo", BLUE, "o"),
    ("IPO", "ipo", GREEN, "P"),
    ("λ", "lambda", SKY, "v"),
)
"""Label, loss, colour and marker for K responses. DPO and NCA share a line, because at Δ = 0 their gradients have the same direction."""
TAU = 0.1


def gradient(method: Method, log_ratios_QK: Tensor, rewards_QK: Tensor, beta: float, beta_reward: float) -> Tensor:
    """∂ loss / ∂ Δ: float64[Q, K]."""
    moved_QK = log_ratios_QK.clone().requires_grad_()
    return torch.autograd.grad(LOSSES[method](moved_QK, rewards_QK, beta, beta_reward).sum(), moved_QK)[0]


def draw() -> Figure:
    """The push, −∂ loss / ∂ Δ. Left: on the chosen response of a pair, by margin, with the rejected response at Δ = 0. Right: on each of 16 responses, by
    reward, at Δ = 0.
    """
    figure = Figure(figsize=(9.5, 3.8), layout="constrained")
    pairs, groups = figure.subplots(1, 2)
    margins = torch.linspace(-6.0, 8.0, 141, dtype=torch.float64)
    log_ratios_Q2 = torch.stack([margins, torch.zeros_like(margins)], dim=-1)
    for label, method, epsilon, colour, style in PAIRS:
        rewards_12 = torch.tensor([hard_label(epsilon)], dtype=torch.float64).expand(len(margins), 2)
        beta = TAU if method == "ipo" else 1.0
        push = -gradient(method, log_ratios_Q2, rewards_12, beta, 1.0)[:, 0]
        at_zero = push[margins.abs().argmin()]
        pairs.plot(margins, push / at_zero, style, color=colour, lw=2, label=label)
    pairs.axhline(0, color=GREY, lw=1)
    pairs.axvline(math.log((1 - EPSILON) / EPSILON), color=ORANGE, lw=1, alpha=0.6)
    pairs.set_ylim(-0.6, 2.4)
    pairs.set_xlabel("margin m (vertical line: c = log((1 − ε) / ε))")
    pairs.set_ylabel("push on the chosen response (1 at m = 0)")
    pairs.set_title("pairs")
    rewards_1K = torch.linspace(0.0, 1.0, 16, dtype=torch.float64)[None]
    for label, method, colour, marker in GROUPS:
        push = -gradient(method, torch.zeros_like(rewards_1K), rewards_1K, 1.0, 0.25)[0]
        groups.plot(rewards_1K[0], push / push.norm(), marker=marker, color=colour, ms=5, lw=1.2, label=label)
    groups.axhline(0, color=GREY, lw=1)
    groups.set_xlabel("reward of the response (β_r = .25)")
    groups.set_ylabel("push on Δ (unit norm over the group)")
    groups.set_title("16 responses, at the reference")
    for axes in (pairs, groups):
        axes.legend(frameon=False, labelcolor=GREY, fontsize=9)
        style_axes(axes)
    return figure
