"""All losses compared with slow references in plain Python, TRL's own code and the closed-form gradients of the docs; how MS and DPO are related at K = 2."""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch import Tensor
from trl import DPOTrainer, RLOOTrainer
from trl.experimental.cpo import CPOTrainer

from tests.train.pair_losses import pair_dpo_loss, pair_mode_seeking_loss
from train.preference.groups import hard_label
from train.preference.losses import (
    dpo_loss,
    ipo_loss,
    lambda_loss,
    mode_seeking_loss,
    nca_loss,
    rloo_loss,
)

Loss = Callable[[Tensor, Tensor, float, float], Tensor]
FAMILY: dict[str, Loss] = {
    "ms": mode_seeking_loss,
    "dpo": dpo_loss,
    "ipo": ipo_loss,
    "lambda": lambda_loss,
    "nca": nca_loss,
    "rloo": rloo_loss,
}
EVERY_LOSS = pytest.mark.parametrize("name", FAMILY)


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def softmax(values: Sequence[float]) -> list[float]:
    powers = [math.exp(value) for value in values]
    return [power / sum(powers) for power in powers]


def discounts(scores: Sequence[float]) -> list[float]:
    """log₂(1 + rank) of each score; the highest has rank 1."""
    return [math.log2(2 + sum(other > score for other in scores)) for score in scores]


def lambda_weight(i: int, j: int, scores: Sequence[float], rewards: Sequence[float], beta_reward: float) -> float:
    discount = discounts(scores)
    gain = 2 ** (rewards[i] / beta_reward) - 2 ** (rewards[j] / beta_reward)
    return abs(gain) * abs(1 / discount[i] - 1 / discount[j])


def advantages(delta: Sequence[float], rewards: Sequence[float], beta: float, beta_reward: float) -> list[float]:
    """RLOO's advantages: each return less the mean of the others."""
    returns = [r / beta_reward - beta * d for r, d in zip(rewards, delta, strict=True)]
    return [own - (sum(returns) - own) / (len(returns) - 1) for own in returns]


def slow_loss(name: str, delta: Sequence[float], rewards: Sequence[float], beta: float, beta_reward: float) -> float:
    """The loss of one prompt in plain Python floats."""
    k = len(delta)
    p_f, p_r = softmax([beta * d for d in delta]), softmax([r / beta_reward for r in rewards])
    scores = [beta * d for d in delta]
    if name == "ms":
        return sum(f * math.log(f / r) for f, r in zip(p_f, p_r, strict=True))
    if name == "dpo":
        return -sum(r * math.log(f) for f, r in zip(p_f, p_r, strict=True))
    if name == "nca":
        return -sum(r * math.log(sigmoid(s)) + math.log(sigmoid(-s)) / k for s, r in zip(scores, p_r, strict=True))
    if name == "rloo":
        terms = zip(map(math.exp, delta), advantages(delta, rewards, beta, beta_reward), strict=True)
        return -sum(min(ratio * a, min(max(ratio, 0.8), 1.2) * a) for ratio, a in terms) / k
    total = 0.0
    for i in range(k):
        for j in range(k):
            if name == "ipo" and i < j:
                preferred = sigmoid((rewards[i] - rewards[j]) / beta_reward)
                total += (delta[i] - delta[j] - (2 * preferred - 1) / (2 * beta)) ** 2
            if name == "lambda" and rewards[i] > rewards[j]:
                weight = lambda_weight(i, j, scores, rewards, beta_reward)
                total -= weight * math.log(sigmoid(scores[i] - scores[j]))
    return total / (k * (k - 1) / 2) if name == "ipo" else total


def closed_gradient(
    name: str, delta: Sequence[float], rewards: Sequence[float], beta: float, beta_reward: float
) -> list[float]:
    """∂ loss / ∂ Δ_i as docs/concepts/objectives/gradients.md writes it."""
    every = range(len(delta))
    p_f, p_r = softmax([beta * d for d in delta]), softmax([r / beta_reward for r in rewards])
    scores = [beta * d for d in delta]
    if name == "ms":
        kl = slow_loss("ms", delta, rewards, beta, beta_reward)
        return [beta * p_f[i] * (math.log(p_f[i] / p_r[i]) - kl) for i in every]
    if name == "dpo":
        return [beta * (p_f[i] - p_r[i]) for i in every]
    if name == "nca":
        return [beta * (sigmoid(scores[i]) * (p_r[i] + 1 / len(delta)) - p_r[i]) for i in every]
    if name == "rloo":
        gains = advantages(delta, rewards, beta, beta_reward)
        clipped = [
            (gains[i] > 0 and delta[i] > math.log(1.2)) or (gains[i] < 0 and delta[i] < math.log(0.8)) for i in every
        ]
        return [0.0 if clipped[i] else -math.exp(delta[i]) * gains[i] / len(delta) for i in every]
    if name == "ipo":
        pairs = len(delta) * (len(delta) - 1) / 2
        return [
            sum(
                2
                / pairs
                * (delta[i] - delta[j] - math.tanh((rewards[i] - rewards[j]) / (2 * beta_reward)) / (2 * beta))
                for j in every
                if j != i
            )
            for i in every
        ]
    return [
        sum(
            (-1 if rewards[i] > rewards[j] else 1)
            * beta
            * lambda_weight(i, j, scores, rewards, beta_reward)
            * sigmoid((scores[j] - scores[i]) * (1 if rewards[i] > rewards[j] else -1))
            for j in every
            if j != i
        )
        for i in every
    ]


@EVERY_LOSS
@pytest.mark.parametrize("size", [2, 3, 7])
def test_losses_equal_the_slow_references_in_float64(name: str, size: int) -> None:
    delta, rewards = 4 * normal(3, size, seed=size), normal(3, size, seed=size + 20)
    losses = FAMILY[name](delta, rewards, 0.3, 0.7)
    assert losses.dtype == torch.float64
    expected = [slow_loss(name, *rows, 0.3, 0.7) for rows in zip(delta.tolist(), rewards.tolist(), strict=True)]
    assert losses.tolist() == pytest.approx(expected, rel=1e-12)


@EVERY_LOSS
@pytest.mark.parametrize("size", [2, 5])
def test_gradients_equal_the_formulas_of_the_docs(name: str, size: int) -> None:
    delta, rewards = (4 * normal(2, size, seed=size)).requires_grad_(), normal(2, size, seed=size + 20)
    (gradient,) = torch.autograd.grad(FAMILY[name](delta, rewards, 0.3, 0.7).sum(), delta)
    for found, *rows in zip(gradient.tolist(), delta.tolist(), rewards.tolist(), strict=True):
        assert found == pytest.approx(closed_gradient(name, *rows, 0.3, 0.7), rel=1e-10, abs=1e-14)


def trl_loss(kind: str, logps_Q2: Tensor, reference_Q2: Tensor, beta: float, label_smoothing: float) -> float:
    """The mean loss that TRL's DPOTrainer computes for completions of one token; model and trainer are stand-ins."""
    logps_R1, reference_R = (sides.T.reshape(-1) for sides in (logps_Q2, reference_Q2))
    count = len(logps_R1)

    def model(**_: Any) -> SimpleNamespace:
        same = torch.ones(count, 1)
        return SimpleNamespace(log_probs=logps_R1[:, None], entropy=same, mean_logits=same, is_top1=same.bool())

    trainer = SimpleNamespace(
        model=SimpleNamespace(training=False),
        accelerator=Accelerator(cpu=True),
        aux_loss_enabled=False,
        ld_alpha=None,
        precompute_ref_logps=True,
        f_divergence_type="reverse_kl",
        loss_types=[kind],
        loss_weights=[1.0],
        beta=beta,
        label_smoothing=label_smoothing,
        use_weighting=False,
        _metrics={"eval": defaultdict(list)},
        _total_train_tokens=0,
    )
    inputs = {
        "input_ids": torch.ones(count, 2, dtype=torch.long),
        "completion_mask": torch.tensor([[0, 1]]).repeat(count, 1),
        "ref_chosen_logps": reference_R[: count // 2],
        "ref_rejected_logps": reference_R[count // 2 :],
    }
    return DPOTrainer._compute_loss(trainer, model, inputs, return_outputs=False).item()


@pytest.mark.parametrize(
    ("kind", "name", "epsilon"),
    [("sigmoid", "dpo", 0.0), ("exo_pair", "ms", 0.01), ("ipo", "ipo", 0.0), ("nca_pair", "nca", 0.0)],
)
def test_pair_losses_equal_those_of_trls_dpo_trainer_in_float64(kind: str, name: str, epsilon: float) -> None:
    """With completions of one token, the mean over tokens in TRL's IPO equals our sum. TRL stores ε in float32."""
    logps_Q2, reference_Q2 = 5 * normal(9, 2, seed=1) - 20, 5 * normal(9, 2, seed=2) - 20
    label = torch.tensor([hard_label(epsilon)], dtype=torch.float64).expand(9, 2)
    ours = FAMILY[name](logps_Q2 - reference_Q2, label, 0.2, 1.0).mean().item()
    assert ours == pytest.approx(trl_loss(kind, logps_Q2, reference_Q2, 0.2, epsilon), rel=1e-7 if epsilon else 1e-12)


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.4])
def test_smoothed_dpo_equals_the_loss_of_trls_cpo_trainer(epsilon: float) -> None:
    """The loss `sigmoid` of TRL's DPOTrainer ignores label smoothing; that of CPOTrainer applies it, to the same function of log-ratios."""
    delta_Q2 = 5 * normal(9, 2, seed=3)
    accelerator = SimpleNamespace(device="cpu")
    trainer = SimpleNamespace(
        accelerator=accelerator, alpha=0.0, beta=0.3, label_smoothing=epsilon, loss_type="sigmoid"
    )
    theirs, *_ = CPOTrainer.cpo_loss(trainer, delta_Q2[:, 0], delta_Q2[:, 1])
    label = torch.tensor([hard_label(epsilon)], dtype=torch.float64)
    for ours in (pair_dpo_loss(delta_Q2, 0.3, epsilon), dpo_loss(delta_Q2, label.expand(9, 2), 0.3, 1.0)):
        assert torch.allclose(ours, theirs, rtol=1e-12)


def test_rloo_equals_the_loss_of_trls_rloo_trainer() -> None:
    """TRL's trainer gets log-probabilities of tokens, and advantages; our loss gets log-ratios, and rewards that lead to these advantages."""
    logps_QK, old_QK, rewards_QK = (normal(3, 4, seed=seed) for seed in (11, 12, 13))
    per_token_R2 = torch.stack([logps_QK.flatten() - 1.5, torch.full((12,), 1.5, dtype=torch.float64)], dim=1)
    trainer = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *_, **__: (per_token_R2, torch.ones(12, 2), None),
        aux_loss_enabled=False,
        epsilon_low=0.2,
        epsilon_high=0.2,
        model=SimpleNamespace(training=False),
        _metrics={"eval": defaultdict(list)},
        accelerator=Accelerator(cpu=True),
    )
    ratios_QK = logps_QK - old_QK
    rows = zip(ratios_QK.tolist(), rewards_QK.tolist(), strict=True)
    gains = [gain for delta, rewards in rows for gain in advantages(delta, rewards, 0.3, 0.7)]
    ones = torch.ones(12, 2, dtype=torch.long)
    inputs = dict.fromkeys(("prompt_ids", "prompt_mask", "completion_ids", "completion_mask"), ones)
    inputs |= {"old_logps": old_QK.flatten(), "advantages": torch.tensor(gains, dtype=torch.float64)}
    theirs = RLOOTrainer._compute_loss(trainer, None, inputs).item()
    assert rloo_loss(ratios_QK, rewards_QK, 0.3, 0.7).mean().item() == pytest.approx(theirs, rel=1e-12)


@EVERY_LOSS
def test_losses_and_gradients_are_finite_at_extreme_log_ratios(name: str) -> None:
    for size in (1e4, -1e4):
        delta = torch.tensor([[size, 0.0, -size]], requires_grad=True)
        loss = FAMILY[name](delta, torch.tensor([[0.0, 0.5, 1.0]]), 1.0, 0.1).sum()
        assert torch.isfinite(loss) and torch.isfinite(torch.autograd.grad(loss, delta)[0]).all()


@EVERY_LOSS
def test_the_order_of_the_responses_does_not_matter(name: str) -> None:
    delta, rewards, order = normal(4, 5, seed=4), normal(4, 5, seed=5), torch.tensor([3, 1, 4, 0, 2])
    losses = (FAMILY[name](delta, rewards, 0.5, 0.3), FAMILY[name](delta[:, order], rewards[:, order], 0.5, 0.3))
    assert torch.allclose(*losses, rtol=1e-12)


def test_lambda_ranks_responses_with_equal_scores_by_reward() -> None:
    """At the reference all scores are equal: the order of the responses must not matter, and the weights must not vanish."""
    zero, rewards, order = torch.zeros(1, 4), torch.tensor([[0.1, 0.9, 0.4, 0.6]]), torch.tensor([2, 0, 3, 1])
    found = lambda_loss(zero, rewards, 0.5, 0.3).item()
    assert found == pytest.approx(lambda_loss(zero, rewards[:, order], 0.5, 0.3).item())
    scores = [-rank * 1e-9 for rank in (4, 1, 3, 2)]
    assert found == pytest.approx(slow_loss("lambda", scores, rewards[0].tolist(), 0.5, 0.3))


def test_gradients_vanish_where_the_docs_say() -> None:
    """Gradients of MS and DPO vanish at Δ = r / (β_π β_r) + any constant, NCA's for one constant, IPO's at the margin 1 / (2τ) for hard pairs, λ's never."""
    rewards = normal(3, 4, seed=6)

    def size_of_gradient(name: str, delta: Tensor, *arguments: Any) -> float:
        moved = delta.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(FAMILY[name](moved, *arguments).sum(), moved)
        return gradient.abs().max().item()

    best = rewards / (0.5 * 0.2)
    for name in ("ms", "dpo"):
        assert size_of_gradient(name, best + 3, rewards, 0.5, 0.2) < 1e-12
        assert size_of_gradient(name, best / 2, rewards, 0.5, 0.2) > 1e-3
        assert size_of_gradient(name, best, rewards, 0.2, 0.5) < 1e-12, "only the product of the betas should matter"
    own = (torch.log_softmax(rewards / 0.2, dim=-1) + math.log(4)) / 0.5
    assert size_of_gradient("nca", own, rewards, 0.5, 0.2) < 1e-12
    assert size_of_gradient("nca", own + 3, rewards, 0.5, 0.2) > 1e-3
    hard = torch.tensor([hard_label(0.0)], dtype=torch.float64)
    pair = torch.tensor([[5.0, 0.0]], dtype=torch.float64)
    assert size_of_gradient("ipo", pair, hard, 0.1, 1.0) < 1e-12 < size_of_gradient("ipo", 2 * pair, hard, 0.1, 1.0)
    assert size_of_gradient("lambda", 10 * pair, hard, 0.1, 1.0) > 1e-4


def margin_gradients(loss_of: Callable[[Tensor], Tensor], margins: Tensor, beta: float) -> Tensor:
    """∂ loss / ∂ Δ of pairs at the given margins m = β (Δ_w − Δ_l): float64[Q, 2]."""
    delta_Q2 = torch.stack([margins / beta + 1.5, torch.full_like(margins, 1.5)], dim=-1).requires_grad_()
    (gradient_Q2,) = torch.autograd.grad(loss_of(delta_Q2).sum(), delta_Q2)
    return gradient_Q2


MARGINS = torch.linspace(-9.0, 9.0, 73, dtype=torch.float64)


@pytest.mark.parametrize("epsilon", [1e-4, 1e-3, 0.01, 0.1, 0.3])
@pytest.mark.parametrize("beta", [0.1, 1.0])
def test_on_pairs_the_gradient_of_ms_is_a_multiple_of_that_of_dpo_and_reverses_beyond_the_margin_c(
    epsilon: float, beta: float
) -> None:
    """∇MS = σ(m) (c − m) ∇DPO with c = log((1 − ε) / ε): parallel below c, zero at c, reversed beyond."""
    c = math.log((1 - epsilon) / epsilon)
    ms = margin_gradients(lambda delta: pair_mode_seeking_loss(delta, beta, epsilon), MARGINS, beta)
    dpo = margin_gradients(lambda delta: pair_dpo_loss(delta, beta), MARGINS, beta)
    factor = torch.sigmoid(MARGINS) * (c - MARGINS)
    assert torch.allclose(ms, factor[:, None] * dpo, rtol=1e-9, atol=1e-13)
    dots = (ms * dpo).sum(dim=-1)
    assert (dots[MARGINS < c] > 0).all() and (dots[MARGINS > c] < 0).all()
    assert (MARGINS > c).any() or epsilon == 1e-4, "MARGINS should reach beyond c for every ε except 1e-4"
    at_c = margin_gradients(
        lambda delta: pair_mode_seeking_loss(delta, beta, epsilon), torch.tensor([c], dtype=torch.float64), beta
    )
    assert at_c.abs().max() < 1e-12


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 0.3])
def test_the_gradient_of_smoothed_dpo_reverses_where_that_of_ms_does(epsilon: float) -> None:
    """With the same ε, the gradients of MS and smoothed DPO (cDPO) are parallel at every margin, beyond c as well: cDPO is the control for MS on pairs."""
    ms = margin_gradients(lambda delta: pair_mode_seeking_loss(delta, 0.5, epsilon), MARGINS, 0.5)
    smoothed = margin_gradients(lambda delta: pair_dpo_loss(delta, 0.5, epsilon), MARGINS, 0.5)
    assert ((ms * smoothed).sum(dim=-1) > 0).all()


def test_at_the_reference_all_losses_but_rloo_have_parallel_gradients_on_a_batch_of_pairs() -> None:
    """Δ = 0, any parameters: the gradient of MS over a batch is c / 2 times that of DPO; with hard labels those of IPO, NCA and λ are parallel to it."""
    weights = torch.zeros(6, requires_grad=True, dtype=torch.float64)
    features = normal(32, 2, 6, seed=7)
    hard = torch.tensor([hard_label(0.0)], dtype=torch.float64).expand(32, 2)

    def gradient(loss_of: Callable[[Tensor], Tensor]) -> Tensor:
        (found,) = torch.autograd.grad(loss_of(features @ weights).mean(), weights)
        return found

    dpo = gradient(lambda delta: pair_dpo_loss(delta, 0.1))
    c = math.log(0.999 / 0.001)
    assert torch.allclose(gradient(lambda delta: pair_mode_seeking_loss(delta, 0.1, 1e-3)), c / 2 * dpo, rtol=1e-9)
    for name in ("ipo", "nca", "lambda"):
        other = gradient(lambda delta, name=name: FAMILY[name](delta, hard, 0.1, 1.0))  # type: ignore[misc]
        assert torch.cosine_similarity(other, dpo, dim=0).item() == pytest.approx(1.0, abs=1e-12), name


@pytest.mark.parametrize("size", [2, 3, 16])
def test_at_the_reference_rloo_is_a_multiple_of_ms(size: int) -> None:
    """Δ = 0, any K and rewards: ∇RLOO = K / ((K − 1) β_π) ∇MS. A step of MS on fresh samples is a policy gradient."""
    rewards, zero = normal(5, size, seed=9), torch.zeros(5, size, dtype=torch.float64, requires_grad=True)
    (ms,) = torch.autograd.grad(mode_seeking_loss(zero, rewards, 0.3, 0.2).sum(), zero)
    (rloo,) = torch.autograd.grad(rloo_loss(zero, rewards, 0.3, 0.2).sum(), zero)
    assert torch.allclose(rloo, size / ((size - 1) * 0.3) * ms, rtol=1e-12)


def test_at_the_reference_the_gradient_of_ms_follows_the_rewards_and_that_of_dpo_their_softmax() -> None:
    """K > 2, Δ = 0: −∇MS ∝ r − mean(r), a policy gradient with the group's mean as baseline; −∇DPO ∝ p_r − 1 / K."""
    rewards, zero = normal(5, 8, seed=8), torch.zeros(5, 8, dtype=torch.float64, requires_grad=True)
    (ms,) = torch.autograd.grad(mode_seeking_loss(zero, rewards, 0.3, 0.2).sum(), zero)
    (dpo,) = torch.autograd.grad(dpo_loss(zero, rewards, 0.3, 0.2).sum(), zero)
    assert torch.allclose(ms, -0.3 / 8 / 0.2 * (rewards - rewards.mean(dim=-1, keepdim=True)), rtol=1e-9)
    assert torch.allclose(dpo, -0.3 * (torch.softmax(rewards / 0.2, dim=-1) - 1 / 8), rtol=1e-9)
    assert (torch.cosine_similarity(ms, dpo, dim=-1) < 0.99).all(), (
        "for more than two responses, the directions should differ"
    )
