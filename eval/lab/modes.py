"""`modegraph lab modes`: which policy do MS and DPO lead to when the policy cannot match its target?

Each objective moves the two parameters of a one-mode policy (eval/lab/line.py) by Adam, from several starts and with
fresh responses drawn from π_ref at every step; the start with the lowest loss counts, and the start at π_ref, where
training begins, is told beside it. The two KL divergences to the target, minimised directly, are what "mode-seeking"
and "mode-covering" mean. The losses are those of the trainers.

Legend: S seeds, T starts, G groups (prompts), K responses a group, X outcomes, P = 2 parameters (μ, log σ).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Generator, Tensor

from eval.lab.line import BETA_POLICY, REFERENCE, Line, kl, log_gaussian, log_target
from eval.lab.types import OBJECTIVES, REVERSE, Experiment, Fit, FittedPolicy, Objective
from graph.shared.console import track
from train.preference.losses import dpo_loss, mode_seeking_loss, pair_dpo_loss, pair_mode_seeking_loss

Losses = Callable[[Tensor], Tensor]
RESPONSES_PER_STEP = 4096
RESPONSES_TO_CHOOSE = 16 * RESPONSES_PER_STEP
LEARNING_RATE, MOMENTS = 0.1, (0.9, 0.99)
EXACT_STEPS = 1200
STARTS = (REFERENCE, (-2.5, 2.5), (2.5, 2.5), (-2.5, 0.5), (0.0, 0.5), (2.5, 0.5))


def run_modes(line: Line, seeds: int, steps: int, objectives: Sequence[Objective] = OBJECTIVES) -> Experiment:
    """Fit every objective for the seeds 0 … seeds − 1."""
    with one_thread():
        fits = [fit(line, each, seeds, steps) for each in track(objectives, "lab modes: objectives", len(objectives))]
    return Experiment(line, seeds, steps, tuple(fits))


@contextmanager
def one_thread() -> Iterator[None]:
    """torch on one thread: the tensors are too small to share, and sums come out the same on every number of cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def fit(line: Line, objective: Objective, seeds: int, steps: int) -> Fit:
    """Minimise one objective; a seed's responses do not depend on how many seeds there are."""
    if objective.responses_per_prompt is None:
        exact = exact_losses(line, objective)
        parameters_STP = descend(line, exact, 1, EXACT_STEPS)
        return choose(line, objective, parameters_STP, exact(log_gaussian(line.points_X, parameters_STP)))
    generators = [Generator().manual_seed(seed) for seed in range(seeds)]
    parameters_STP = descend(line, sampled_losses(line, objective, generators, RESPONSES_PER_STEP), seeds, steps)
    fresh = sampled_losses(line, objective, generators, RESPONSES_TO_CHOOSE)
    return choose(line, objective, parameters_STP, fresh(log_gaussian(line.points_X, parameters_STP)))


def exact_losses(line: Line, objective: Objective) -> Losses:
    """log π [..., X] to KL(π‖π*) for "reverse KL", to KL(π*‖π) for "forward KL": [...]."""
    target_X = log_target(line)
    if objective == REVERSE:
        return lambda log_policy_X: kl(log_policy_X, target_X)
    return lambda log_policy_X: kl(target_X, log_policy_X)


def sampled_losses(line: Line, objective: Objective, generators: Sequence[Generator], responses: int) -> Losses:
    """log π [S, T, X] to the mean loss [S, T] over groups that each call draws anew: the same for all starts of a seed."""

    def losses(log_policy_STX: Tensor) -> Tensor:
        groups_SGK = torch.stack([draw_groups(line, objective, responses, each) for each in generators])
        return group_losses(line, objective, log_policy_STX, groups_SGK)

    return losses


def draw_groups(line: Line, objective: Objective, responses: int, generator: Generator) -> Tensor:
    """`responses` outcomes drawn from π_ref in groups of K: int64[G, K], places in X; hard pairs have the better first."""
    drawn_N = torch.multinomial(line.log_reference_X.exp(), responses, replacement=True, generator=generator)
    groups_GK = drawn_N.view(-1, objective.responses_per_prompt or 1)
    if objective.labels != "hard":
        return groups_GK
    return groups_GK.gather(1, line.rewards_X[groups_GK].argsort(dim=1, descending=True, stable=True))


def group_losses(line: Line, objective: Objective, log_policy_STX: Tensor, groups_SGK: Tensor) -> Tensor:
    """The mean over groups of the loss that train/preference/losses.py gives to each (float32 inside): [S, T]."""
    seeds, starts, _ = log_policy_STX.shape
    log_ratios_STX = (log_policy_STX - line.log_reference_X).float()
    places_STN = groups_SGK.view(seeds, 1, -1).expand(-1, starts, -1)
    log_ratios_STGK = log_ratios_STX.gather(2, places_STN).view(seeds, starts, *groups_SGK.shape[1:])
    rewards_S1GK = line.rewards_X[groups_SGK].unsqueeze(1)
    return response_losses(objective, log_ratios_STGK, rewards_S1GK, line.beta_reward).mean(dim=-1)


def response_losses(objective: Objective, log_ratios_K: Tensor, rewards_K: Tensor, beta_reward: float) -> Tensor:
    """The objective's function of train/preference/losses.py over the last axis; the others are kept."""
    smoothing = objective.label_smoothing
    if smoothing is None:
        loss = mode_seeking_loss if objective.method == "MS" else dpo_loss
        return loss(log_ratios_K, rewards_K, BETA_POLICY, beta_reward)
    if objective.method == "MS":
        return pair_mode_seeking_loss(log_ratios_K, BETA_POLICY, smoothing)
    return pair_dpo_loss(log_ratios_K, BETA_POLICY)


def descend(line: Line, losses: Losses, seeds: int, steps: int) -> Tensor:
    """Adam with a cosine schedule on (μ, log σ) of every start of every seed at once: float64[S, T, P]."""
    starts_TP = torch.tensor([(mean, math.log(width)) for mean, width in STARTS], dtype=torch.float64)
    parameters_STP = starts_TP.repeat(seeds, 1, 1).requires_grad_()
    optimiser = torch.optim.Adam([parameters_STP], lr=LEARNING_RATE, betas=MOMENTS)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        total = losses(log_gaussian(line.points_X, parameters_STP)).sum()
        (parameters_STP.grad,) = torch.autograd.grad(total, parameters_STP)
        optimiser.step()
        schedule.step()
    return parameters_STP.detach()


def choose(line: Line, objective: Objective, parameters_STP: Tensor, losses_ST: Tensor) -> Fit:
    """For each seed the start with the lowest loss (ties: the first), and how it stands to the target."""
    target_X, log_policy_STX = log_target(line), log_gaussian(line.points_X, parameters_STP)
    reverse_ST, forward_ST = kl(log_policy_STX, target_X), kl(target_X, log_policy_STX)
    reward_ST = (log_policy_STX.exp() * line.rewards_X).sum(dim=-1)
    policies = []
    for seed, start in enumerate(losses_ST.argmin(dim=1).tolist()):
        mean, log_width = parameters_STP[seed, start].tolist()
        reverse, forward, reward = (each[seed, start].item() for each in (reverse_ST, forward_ST, reward_ST))
        from_reference = reverse_ST[seed, STARTS.index(REFERENCE)].item()
        policies.append(FittedPolicy(mean, math.exp(log_width), reverse, forward, reward, from_reference))
    return Fit(objective, tuple(policies))
