"""The losses of pairs in their closed forms: references for the losses of K responses at K = 2 with the label (1 − ε, ε)."""

import math

from torch import Tensor
from torch.nn.functional import logsigmoid

from train.preference.losses import at_least_float32


def pair_mode_seeking_loss(log_ratios_Q2: Tensor, beta: float, label_smoothing: float) -> Tensor:
    """KL(softmax(β Δ) ‖ (1 − ε, ε)) for (chosen, rejected): TRL's `exo_pair`."""
    margin_Q = beta * _gaps(log_ratios_Q2)
    log_win_Q, log_lose_Q = logsigmoid(margin_Q), logsigmoid(-margin_Q)
    return log_win_Q.exp() * (log_win_Q - math.log1p(-label_smoothing)) + log_lose_Q.exp() * (
        log_lose_Q - math.log(label_smoothing)
    )


def pair_dpo_loss(log_ratios_Q2: Tensor, beta: float, label_smoothing: float = 0.0) -> Tensor:
    """−(1 − ε) log σ(m) − ε log σ(−m), m = β (Δ_chosen − Δ_rejected): TRL's `sigmoid` at ε = 0, else cDPO (Mitchell 2023)."""
    margin_Q = beta * _gaps(log_ratios_Q2)
    return -(1 - label_smoothing) * logsigmoid(margin_Q) - label_smoothing * logsigmoid(-margin_Q)


def _gaps(log_ratios_Q2: Tensor) -> Tensor:
    chosen_Q, rejected_Q = at_least_float32(log_ratios_Q2).unbind(dim=-1)
    return chosen_Q - rejected_Q
