"""Where do MS and DPO lead a policy that can have only one mode, when its target has two? For K = 2 to 256, in a minute on a CPU.

    python -P benchmarks/experiments/two_modes.py --out two-modes --json

Writes modes.json into --out.

Each objective is minimised by Adam over the two parameters of a policy, from several starts: the trainers' losses with fresh responses drawn from π_ref
at every step, and two exact KL divergences, which define mode-seeking and mode-covering.
Legend: S seeds, T starts, G groups (prompts), K responses per group, X outcomes, P = 2 parameters (μ, log σ). Log-probabilities in nats, float64 (float32
in the losses). β_π is 1 throughout: only then do the K-response losses tend to the KL divergences between π and π* as K grows."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch
from torch import Generator, Tensor

from benchmarks.report import new_parser
from eval.tables import NONE, Table, as_text, figure_or_dash
from graph.errors import UserError
from graph.shared.console import say, track
from graph.shared.jsonl import write_json
from train.preference.groups import hard_label
from train.preference.losses import dpo_loss, mode_seeking_loss

BETA_POLICY = 1.0
DEFAULT_BETA_REWARD = 0.12
SMALLEST_BETA, LARGEST_BETA = 0.01, 10.0
REFERENCE = (0.0, 2.5)


@dataclass(frozen=True)
class Line:
    """The outcomes, log π_ref and the reward of each, and the β_r that softens the rewards into p_r = softmax(r / β_r)."""

    points_X: Tensor
    log_reference_X: Tensor
    rewards_X: Tensor
    beta_reward: float


def two_modes(beta_reward: float = DEFAULT_BETA_REWARD) -> Line:
    """41 outcomes in [−4, 4], a wide reference, a high narrow reward at 2 and a lower wide one at −1.6.

    UserError for a β_r outside [0.01, 10], where float32 precision or the contrast of the two modes would be lost.
    """
    if not SMALLEST_BETA <= beta_reward <= LARGEST_BETA:
        expected = f"β_r from {SMALLEST_BETA} to {LARGEST_BETA:g}"
        raise UserError(
            f"--beta-reward {beta_reward:g}",
            expected,
            f"change it; with {DEFAULT_BETA_REWARD}, the target has two modes",
        )
    points_X = torch.linspace(-4.0, 4.0, 41, dtype=torch.float64)
    rewards_X = bump(points_X, 2.0, 0.35) + 0.85 * bump(points_X, -1.6, 0.6)
    return Line(points_X, torch.log_softmax(bump(points_X, *REFERENCE).log(), dim=-1), rewards_X, beta_reward)


def bump(points_X: Tensor, centre: float, width: float) -> Tensor:
    """exp(−½ ((x − centre) / width)²), of height 1."""
    return torch.exp(-0.5 * ((points_X - centre) / width) ** 2)


def log_target(line: Line) -> Tensor:
    """log π*, π* ∝ π_ref exp(r / (β_r β_π)): the optimum of every soft or exact objective for an unrestricted policy. float64[X]."""
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


Method = Literal["reverse KL", "forward KL", "MS", "DPO"]
GROUP_SIZES = (2, 4, 8, 16, 32, 64, 128, 256)
PAIR_SMOOTHINGS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)


@dataclass(frozen=True)
class Objective:
    """The minimised function: an exact KL divergence (K is None), or a loss over groups of K responses.

    `label_smoothing` is the ε of pairs with hard labels (DPO: 0); None means soft labels, softmax(r / β_r).
    """

    method: Method
    responses_per_prompt: int | None = None
    label_smoothing: float | None = None

    @property
    def labels(self) -> str:
        """The kind of target: "exact" (π* itself), "soft" (softmax(r / β_r)) or "hard" (the pair (1 − ε, ε), higher reward first)."""
        if self.responses_per_prompt is None:
            return "exact"
        return "soft" if self.label_smoothing is None else "hard"


REVERSE, FORWARD = Objective("reverse KL"), Objective("forward KL")
DPO_PAIRS = Objective("DPO", 2, 0.0)
OBJECTIVES = (
    REVERSE,
    FORWARD,
    *(Objective("MS", size) for size in GROUP_SIZES),
    *(Objective("DPO", size) for size in GROUP_SIZES),
    *(Objective("MS", 2, smoothing) for smoothing in PAIR_SMOOTHINGS),
    DPO_PAIRS,
)


@dataclass(frozen=True)
class FittedPolicy:
    """For one seed, the policy with the lowest final loss among those reached from the STARTS; KL(π‖π*) and KL(π*‖π) in nats.

    `reverse_kl_from_reference` is KL(π‖π*) of the policy reached from π_ref, whatever its loss.
    """

    mean: float
    width: float
    reverse_kl: float
    forward_kl: float
    expected_reward: float
    reverse_kl_from_reference: float


@dataclass(frozen=True)
class Fit:
    """The policies of one objective, one per seed (an exact objective involves no sampling and has only one)."""

    objective: Objective
    policies: tuple[FittedPolicy, ...]


@dataclass(frozen=True)
class Experiment:
    """Every fit of one run, for the seeds 0 … seeds − 1; the headline needs the reverse KL among them."""

    line: Line
    seeds: int
    steps: int
    fits: tuple[Fit, ...]

    def fit_of(self, objective: Objective) -> Fit:
        """The fit of one objective."""
        return next(fit for fit in self.fits if fit.objective == objective)

    def fits_by(self, method: Method, labels: str) -> list[Fit]:
        """The fits of one method with one kind of labels, in the order they ran (rising K or ε)."""
        return [fit for fit in self.fits if (fit.objective.method, fit.objective.labels) == (method, labels)]


Losses = Callable[[Tensor], Tensor]
RESPONSES_PER_STEP = 4096
RESPONSES_TO_CHOOSE = 16 * RESPONSES_PER_STEP
"""Fresh responses per seed, on which the final losses of the starts are compared."""
LEARNING_RATE, MOMENTS = 0.1, (0.9, 0.99)
EXACT_STEPS = 1200
STARTS = (REFERENCE, (-2.5, 2.5), (2.5, 2.5), (-2.5, 0.5), (0.0, 0.5), (2.5, 0.5))


def run_modes(line: Line, seeds: int, steps: int, objectives: Sequence[Objective] = OBJECTIVES) -> Experiment:
    """Fit every objective for the seeds 0 … seeds − 1."""
    with one_thread():
        fits = [
            fit_objective(line, objective, seeds, steps)
            for objective in track(objectives, "objectives", len(objectives))
        ]
    return Experiment(line, seeds, steps, tuple(fits))


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread: the tensors are too small for several, and sums are then the same on any number of cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def fit_objective(line: Line, objective: Objective, seeds: int, steps: int) -> Fit:
    """Minimise one objective; a seed's responses do not depend on how many seeds there are."""
    if objective.responses_per_prompt is None:
        exact = exact_losses(line, objective)
        parameters_STP = descend(line, exact, 1, EXACT_STEPS)
        return best_starts(line, objective, parameters_STP, exact(log_gaussian(line.points_X, parameters_STP)))
    generators = [Generator().manual_seed(seed) for seed in range(seeds)]
    parameters_STP = descend(line, sampled_losses(line, objective, generators, RESPONSES_PER_STEP), seeds, steps)
    fresh = sampled_losses(line, objective, generators, RESPONSES_TO_CHOOSE)
    return best_starts(line, objective, parameters_STP, fresh(log_gaussian(line.points_X, parameters_STP)))


def exact_losses(line: Line, objective: Objective) -> Losses:
    """A function from log π [..., X] to KL(π‖π*) for "reverse KL", or to KL(π*‖π) for "forward KL": [...]."""
    target_X = log_target(line)
    if objective == REVERSE:
        return lambda log_policy_X: kl(log_policy_X, target_X)
    return lambda log_policy_X: kl(target_X, log_policy_X)


def sampled_losses(line: Line, objective: Objective, generators: Sequence[Generator], responses: int) -> Losses:
    """A function from log π [S, T, X] to the mean loss [S, T] over groups that each call samples anew, the same for all starts of a seed."""

    def losses(log_policy_STX: Tensor) -> Tensor:
        groups_SGK = torch.stack([draw_groups(line, objective, responses, generator) for generator in generators])
        return group_losses(line, objective, log_policy_STX, groups_SGK)

    return losses


def draw_groups(line: Line, objective: Objective, responses: int, generator: Generator) -> Tensor:
    """`responses` outcomes drawn from π_ref in groups of K: int64[G, K], indices into X; hard pairs have the better outcome first."""
    drawn_N = torch.multinomial(line.log_reference_X.exp(), responses, replacement=True, generator=generator)
    groups_GK = drawn_N.view(-1, objective.responses_per_prompt or 1)
    if objective.labels != "hard":
        return groups_GK
    return groups_GK.gather(1, line.rewards_X[groups_GK].argsort(dim=1, descending=True, stable=True))


def group_losses(line: Line, objective: Objective, log_policy_STX: Tensor, groups_SGK: Tensor) -> Tensor:
    """The mean over groups of the loss that train/preference/losses.py gives to each (float32 inside): [S, T]."""
    seeds, starts, _ = log_policy_STX.shape
    log_ratios_STX = (log_policy_STX - line.log_reference_X).float()
    indices_STN = groups_SGK.view(seeds, 1, -1).expand(-1, starts, -1)
    log_ratios_STGK = log_ratios_STX.gather(2, indices_STN).view(seeds, starts, *groups_SGK.shape[1:])
    rewards_S1GK = line.rewards_X[groups_SGK].unsqueeze(1).float()
    return response_losses(objective, log_ratios_STGK, rewards_S1GK, line.beta_reward).mean(dim=-1)


def response_losses(objective: Objective, log_ratios_K: Tensor, rewards_K: Tensor, beta_reward: float) -> Tensor:
    """The objective's function of train/preference/losses.py over the last axis; other axes are kept."""
    loss = mode_seeking_loss if objective.method == "MS" else dpo_loss
    if objective.label_smoothing is None:
        return loss(log_ratios_K, rewards_K, BETA_POLICY, beta_reward)
    return loss(log_ratios_K, torch.tensor(hard_label(objective.label_smoothing)), BETA_POLICY, 1.0)


def descend(line: Line, losses: Losses, seeds: int, steps: int) -> Tensor:
    """Adam with a cosine schedule on (μ, log σ), for all starts and seeds in parallel: float64[S, T, P]."""
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


def best_starts(line: Line, objective: Objective, parameters_STP: Tensor, losses_ST: Tensor) -> Fit:
    """For each seed, the policy of the start with the lowest final loss (ties: the first), compared with the target."""
    target_X, log_policy_STX = log_target(line), log_gaussian(line.points_X, parameters_STP)
    reverse_ST, forward_ST = kl(log_policy_STX, target_X), kl(target_X, log_policy_STX)
    reward_ST = (log_policy_STX.exp() * line.rewards_X).sum(dim=-1)
    policies = []
    for seed, start in enumerate(losses_ST.argmin(dim=1).tolist()):
        mean, log_width = parameters_STP[seed, start].tolist()
        reverse, forward, reward = (values_ST[seed, start].item() for values_ST in (reverse_ST, forward_ST, reward_ST))
        from_reference = reverse_ST[seed, STARTS.index(REFERENCE)].item()
        policies.append(FittedPolicy(mean, math.exp(log_width), reverse, forward, reward, from_reference))
    return Fit(objective, tuple(policies))


NEAR_NATS = 0.02
FIT_MEASURES: tuple[tuple[str, str, Callable[[FittedPolicy], float]], ...] = (
    ("reverse_kl", "KL(π‖π*)", lambda policy: policy.reverse_kl),
    ("reverse_kl_from_reference", "KL(π‖π*), from π_ref", lambda policy: policy.reverse_kl_from_reference),
    ("forward_kl", "KL(π*‖π)", lambda policy: policy.forward_kl),
    ("expected_reward", "E[r]", lambda policy: policy.expected_reward),
    ("mean", "μ", lambda policy: policy.mean),
    ("width", "σ", lambda policy: policy.width),
)


def modes_headline(experiment: Experiment) -> str:
    """Which K reach the reverse-KL optimum, at which β, and where the exact reverse KL ends if it starts at π_ref."""
    exact = experiment.fit_of(REVERSE).policies[0]
    methods: tuple[Method, ...] = ("MS", "DPO")
    reached = "; ".join(
        f"{method} {_sizes_near_optimum(experiment.fits_by(method, 'soft'), exact.reverse_kl)}" for method in methods
    )
    return (
        f"Soft labels, β_r = {experiment.line.beta_reward:g}, β_π = {BETA_POLICY:g}, best of {len(STARTS)} starts: "
        f"KL(π‖π*) within {NEAR_NATS} of the reverse-KL optimum, {exact.reverse_kl:.3f}, for every seed: {reached}. "
        f"From the start at π_ref, the exact reverse KL ends at {exact.reverse_kl_from_reference:.3f}."
    )


def _sizes_near_optimum(fits: Sequence[Fit], optimum: float) -> str:
    near = [
        f"{fit.objective.responses_per_prompt}"
        for fit in fits
        if max(policy.reverse_kl for policy in fit.policies) <= optimum + NEAR_NATS
    ]
    lowest = min(policy.reverse_kl for fit in fits for policy in fit.policies)
    return f"for K = {', '.join(near)}" if near else f"for no K (lowest: {lowest:.2f})"


def conditions_text(experiment: Experiment) -> str:
    """β, seeds, steps and responses: the conditions to state with every table and figure."""
    return (
        f"β_r = {experiment.line.beta_reward:g}, β_π = {BETA_POLICY:g}; seeds 0 to {experiment.seeds - 1}, "
        f"{experiment.steps} steps of {RESPONSES_PER_STEP:,} responses drawn from π_ref"
    )


def modes_table(experiment: Experiment) -> Table:
    """One row per objective; means over seeds, the standard deviation after ±."""
    header = ("objective", "labels", "K", "ε", "β_r", "β_π", *(title for _, title, _ in FIT_MEASURES))
    rows = tuple(_fit_row(fit, experiment.line.beta_reward) for fit in experiment.fits)
    note = (
        f"{conditions_text(experiment)}. KLs in nats; mean ± standard deviation over seeds. Of {len(STARTS)} starts, the figures are those of "
        f"the one with the lowest final loss; those 'from π_ref' are of the start at the reference policy. Hard labels: pairs, "
        "higher reward first, with ε instead of β_r."
    )
    return Table("A policy with one mode, a target with two: where each objective leads", header, rows, note)


def _fit_row(fit: Fit, beta_reward: float) -> tuple[str, ...]:
    objective = fit.objective
    size, smoothing = (
        figure_or_dash(objective.responses_per_prompt, "g"),
        figure_or_dash(objective.label_smoothing, "g"),
    )
    softness = NONE if objective.labels == "hard" else f"{beta_reward:g}"
    figures = (_mean_and_spread([of(policy) for policy in fit.policies]) for _, _, of in FIT_MEASURES)
    return (objective.method, objective.labels, size, smoothing, softness, f"{BETA_POLICY:g}", *figures)


def _mean_and_spread(values: Sequence[float]) -> str:
    mean = f"{fmean(values):.3f}"
    return mean if len(values) == 1 else f"{mean} ± {stdev(values):.3f}"


def modes_json(experiment: Experiment) -> dict[str, Any]:
    """Headline, settings, and for every objective its figures: means, standard deviations, and the value of each seed."""
    line = experiment.line
    return {
        "headline": modes_headline(experiment),
        "settings": {
            "beta_reward": line.beta_reward,
            "beta_policy": BETA_POLICY,
            "seeds": list(range(experiment.seeds)),
            "steps": experiment.steps,
            "responses_per_step": RESPONSES_PER_STEP,
            "learning_rate": LEARNING_RATE,
            "starts": [{"mean": mean, "width": width} for mean, width in STARTS],
            "points": line.points_X.tolist(),
            "reference": line.log_reference_X.exp().tolist(),
            "rewards": line.rewards_X.tolist(),
        },
        "objectives": [_fit_json(fit) for fit in experiment.fits],
    }


def _fit_json(fit: Fit) -> dict[str, Any]:
    by_seed = {name: [of(policy) for policy in fit.policies] for name, _, of in FIT_MEASURES}
    return {
        **asdict(fit.objective),
        "labels": fit.objective.labels,
        "means": {name: fmean(values) for name, values in by_seed.items()},
        "standard_deviations": {name: stdev(values) if len(values) > 1 else None for name, values in by_seed.items()},
        "by_seed": by_seed,
    }


def write_modes(experiment: Experiment, out: Path) -> None:
    """Write modes.json into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "modes.json", modes_json(experiment))
    say(f"wrote {out / 'modes.json'}")


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--beta-reward", type=float, default=DEFAULT_BETA_REWARD, help="β_r")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds, from 0; each draws different responses")
    parser.add_argument(
        "--steps", type=int, default=300, help="gradient steps from each start; the exact KLs always take 1200"
    )
    parser.add_argument("--out", type=Path, default=Path("two-modes"))
    options = parser.parse_args()
    line = two_modes(options.beta_reward)
    experiment = run_modes(line, options.seeds, options.steps)
    write_modes(experiment, options.out)
    table = modes_table(experiment)
    text = f"{as_text(table)}\n\n{table.note}\n{modes_headline(experiment)}"
    print(json.dumps(modes_json(experiment), indent=2) if options.json else text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
