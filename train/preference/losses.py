"""The family of alignment losses, as functions of log-ratios and rewards: the trainers minimise them and eval reports them.
`prompt_losses` also returns the figures of each prompt, for the log.

Legend: R responses of a batch, prompt after prompt; Q prompts, K responses to each, P pairs of responses. `log_ratios_QK` contains
Δ_i = log π_θ(y_i|x) − log π_ref(y_i|x), summed over the completion's tokens with its end token (see train/model/logps.py); `rewards_QK` contains
r_i. A pair is K = 2 with the chosen response first and the rewards (log(1 − ε), log ε) at β_r = 1 (groups.py: hard_label); ε = 0 is a hard label.
Every loss computes in float32, or in float64 if the log-ratios are float64, does not change its inputs, and returns one value per prompt: float[Q].

| loss | what its minimum identifies |
|---|---|
| MS, DPO, smoothed DPO | β_π β_r alone: minimal where Δ = r / (β_π β_r) + a constant of the prompt |
| NCA | β_π β_r, and that constant: minimal where β_π Δ = log(K p_r) |
| IPO | τ and β_r: minimal where Δ_i − Δ_j = tanh((r_i − r_j) / 2β_r) / 2τ, for hard labels 1 / 2τ |
| λ | nothing: minimal at an infinite margin, like DPO with hard labels; β_π sets how fast a margin saturates, β_r how much a gap in reward weighs |
| RLOO | β_π β_r, for samples of the reference: without clipping, its expected gradient is then β_π times that of KL(π ‖ π_ref exp(r / β_π β_r)) |

Only RLOO assumes that the responses were sampled from the reference.
docs/concepts/objectives/gradients.md has the gradients of all these losses. Sources: MS and DPO for K responses are EXO's (Ji et al. 2024), used by GraphMPA
as "mode-seeking" preference optimisation (§3.3, Eqs. 10-11).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import log_softmax, logsigmoid

CLIP = 0.2
"""RLOO: a response whose probability changed by more than this share in the direction of its advantage is pushed no further (TRL's epsilon)."""
MAX_LOG_RATIO = 20.0
"""RLOO: the largest log-ratio that is exponentiated, so that the loss stays finite."""


def mode_seeking_loss(log_ratios_QK: Tensor, rewards_QK: Tensor, beta_policy: float, beta_reward: float) -> Tensor:
    """Reverse KL: Σ_i p_f,i (log p_f,i − log p_r,i) with p_f = softmax(β_π Δ), p_r = softmax(r / β_r).

    >>> mode_seeking_loss(torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 3.0]]).log(), 1.0, 1.0)
    tensor([0.1438])
    """
    policy_QK = policy_log_shares(log_ratios_QK, beta_policy)
    return (policy_QK.exp() * (policy_QK - reward_log_shares(rewards_QK, beta_reward))).sum(dim=-1)


def dpo_loss(log_ratios_QK: Tensor, rewards_QK: Tensor, beta_policy: float, beta_reward: float) -> Tensor:
    """Forward KL up to its constant, the entropy of p_r: −Σ_i p_r,i log p_f,i (DPO for K responses with soft labels; InfoNCA).

    >>> dpo_loss(torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 3.0]]).log(), 1.0, 1.0)
    tensor([0.6931])
    """
    policy_QK = policy_log_shares(log_ratios_QK, beta_policy)
    return -(reward_log_shares(rewards_QK, beta_reward).exp() * policy_QK).sum(dim=-1)


def ipo_loss(log_ratios_QK: Tensor, rewards_QK: Tensor, tau: float, beta_reward: float) -> Tensor:
    """Mean over pairs of (Δ_i − Δ_j − (2 p_ij − 1) / 2τ)² with p_ij = σ((r_i − r_j) / β_r); IPO (Azar et al. 2024, Eq. 17) at p_ij = 1.

    For a soft p_ij, this is the mean of Eq. 17 over labels sampled with probability p_ij, up to a constant. Δ is summed over tokens, as in
    the paper's theory; TRL takes means over tokens, so that its τ = 0.1 demands 5 nats per token.

    >>> ipo_loss(torch.tensor([[3.0, 1.0]]), torch.tensor([[0.0, -torch.inf]]), 0.25, 1.0), ipo_loss(torch.zeros(1, 2), torch.zeros(1, 2), 0.1, 1.0)
    (tensor([0.]), tensor([0.]))
    """
    labels_QK = reward_log_shares(rewards_QK, beta_reward)
    gaps_QP, label_gaps_QP = pair_gaps(at_least_float32(log_ratios_QK)), pair_gaps(labels_QK)
    return ((gaps_QP - torch.tanh(label_gaps_QP / 2) / (2 * tau)) ** 2).mean(dim=-1)


def lambda_loss(log_ratios_QK: Tensor, rewards_QK: Tensor, beta_policy: float, beta_reward: float) -> Tensor:
    """LiPO-λ (Liu et al. 2024, §4): −Σ_{r_i > r_j} λ_ij log σ(β_π (Δ_i − Δ_j)), λ_ij = |G_i − G_j| · |1 / D_i − 1 / D_j|.

    G = 2^(r / β_r) − 1 is the gain and D = log₂(1 + rank) the discount of the rank that β_π Δ gives a response: 1 is the
    highest; ties are ranked by reward (all tie while the policy equals the reference). At K = 2: DPO with a hard label, times a constant of the prompt.

    >>> lambda_loss(torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 0.0]]), 1.0, 1.0) / (1 - 1 / torch.tensor(3.0).log2())
    tensor([0.6931])
    """
    scores_QK = beta_policy * at_least_float32(log_ratios_QK)
    gains_QK = torch.exp2(at_least_float32(rewards_QK) / beta_reward) - 1
    gaps_QP, gain_gaps_QP = pair_gaps(scores_QK), pair_gaps(gains_QK)
    ranks_QK = descending_ranks(scores_QK.detach(), gains_QK).to(scores_QK.dtype)
    weights_QP = (gain_gaps_QP * pair_gaps(1 / torch.log2(1 + ranks_QK))).abs()
    return -(weights_QP * logsigmoid(gain_gaps_QP.sign() * gaps_QP)).sum(dim=-1)


def nca_loss(log_ratios_QK: Tensor, rewards_QK: Tensor, beta_policy: float, beta_reward: float) -> Tensor:
    """NCA (Chen et al. 2024): −Σ_i [p_r,i log σ(β_π Δ_i) + log σ(−β_π Δ_i) / K]; TRL's `nca_pair` for K = 2 and a hard label.

    Not only the differences of Δ count: a good response has to become likelier than under the reference.

    >>> nca_loss(torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 0.0]]), 1.0, 1.0)
    tensor([1.3863])
    """
    scores_QK = beta_policy * at_least_float32(log_ratios_QK)
    labels_QK = reward_log_shares(rewards_QK, beta_reward).exp()
    return -(labels_QK * logsigmoid(scores_QK) + logsigmoid(-scores_QK) / scores_QK.shape[-1]).sum(dim=-1)


def rloo_loss(log_ratios_QK: Tensor, rewards_QK: Tensor, beta_policy: float, beta_reward: float) -> Tensor:
    """RLOO (Ahmadian et al. 2024, Eq. 8) with clipped ratios: −mean_i min(ρ_i A_i, clip(ρ_i, 1 ± CLIP) A_i), ρ = exp(Δ) of whole responses.

    A_i = R_i − mean of the other R_j, with R = r / β_r − β_π Δ, treated as a constant: the reward less the KL penalty. The responses must be samples
    of the reference. At Δ = 0 the gradient is K / ((K − 1) β_π) times that of MS.

    >>> rloo_loss(torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 0.0]]), 1.0, 1.0)
    tensor([-0.])
    """
    delta_QK = at_least_float32(log_ratios_QK)
    returns_QK = at_least_float32(rewards_QK) / beta_reward - beta_policy * delta_QK.detach()
    count = delta_QK.shape[-1]
    advantages_QK = (returns_QK - returns_QK.mean(dim=-1, keepdim=True)) * count / (count - 1)
    ratios_QK = delta_QK.clamp(max=MAX_LOG_RATIO).exp()
    return -torch.minimum(ratios_QK * advantages_QK, ratios_QK.clamp(1 - CLIP, 1 + CLIP) * advantages_QK).mean(dim=-1)


def policy_log_shares(log_ratios_QK: Tensor, beta_policy: float) -> Tensor:
    """log p_f = log softmax(β_π Δ) over the K responses of each prompt: float[Q, K]."""
    return log_softmax(beta_policy * at_least_float32(log_ratios_QK), dim=-1)


def reward_log_shares(rewards_QK: Tensor, beta_reward: float) -> Tensor:
    """log p_r = log softmax(r / β_r) over the K responses of each prompt: float[Q, K]."""
    return log_softmax(at_least_float32(rewards_QK) / beta_reward, dim=-1)


def pair_gaps(values_QK: Tensor) -> Tensor:
    """v_i − v_j for all i < j: float[Q, P], P = K (K − 1) / 2.

    >>> pair_gaps(torch.tensor([[3.0, 1.0, 0.0]]))
    tensor([[2., 3., 1.]])
    """
    first_P, second_P = torch.triu_indices(values_QK.shape[-1], values_QK.shape[-1], offset=1, device=values_QK.device)
    return values_QK[..., first_P] - values_QK[..., second_P]


def descending_ranks(values_QK: Tensor, ties_QK: Tensor) -> Tensor:
    """The rank of each value from 1, the highest; of equal values the one with the higher tie-breaker first: int64[Q, K].

    >>> descending_ranks(torch.tensor([[0.0, 2.0, 0.0]]), torch.tensor([[1.0, 1.0, 5.0]]))
    tensor([[3, 1, 2]])
    """
    by_tie_QK = ties_QK.argsort(dim=-1, descending=True, stable=True)
    by_value_QK = values_QK.gather(-1, by_tie_QK).argsort(dim=-1, descending=True, stable=True)
    return by_tie_QK.gather(-1, by_value_QK).argsort(dim=-1) + 1


def at_least_float32(values: Tensor) -> Tensor:
    """float64 unchanged, anything else as float32."""
    return values if values.dtype == torch.float64 else values.float()


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
    """A loss of the family with β_π (IPO's τ) and β_r."""

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
    Two metrics are not TRL's: `shares/chosen`, p_f of the best-rewarded response, and `shares/entropy`, the entropy of p_f divided by log K.
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
