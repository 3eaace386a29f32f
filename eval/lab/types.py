"""The nouns of `modegraph lab modes`: an objective, where it led, and the whole experiment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from eval.lab.line import Line

Method = Literal["reverse KL", "forward KL", "MS", "DPO"]
GROUP_SIZES = (2, 4, 8, 16, 32, 64, 128, 256)
PAIR_SMOOTHINGS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)


@dataclass(frozen=True)
class Objective:
    """What is minimised: an exact KL divergence (K is None), or a loss over groups of K responses.

    `label_smoothing` is the ε of pairs with hard labels (DPO: 0); None means soft labels, softmax(r / β_r).
    """

    method: Method
    responses_per_prompt: int | None = None
    label_smoothing: float | None = None

    @property
    def labels(self) -> str:
        """What a group is pulled towards: π* itself, softmax(r / β_r), or the pair (1 − ε, ε), higher reward first."""
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
    """Where the start with the lowest loss ended, for one seed; KL(π‖π*) and KL(π*‖π) in nats.

    `reverse_kl_from_reference` is KL(π‖π*) where the start at π_ref ended, whatever its loss.
    """

    mean: float
    width: float
    reverse_kl: float
    forward_kl: float
    expected_reward: float
    reverse_kl_from_reference: float


@dataclass(frozen=True)
class Fit:
    """The policies of one objective, one a seed (an exact objective draws nothing and has one)."""

    objective: Objective
    policies: tuple[FittedPolicy, ...]


@dataclass(frozen=True)
class Experiment:
    """Every fit of one run, for the seeds 0 … seeds − 1; the two exact objectives are always among them."""

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
