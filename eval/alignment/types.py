"""The nouns of measuring alignment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from eval.shared.statistics import Verdict
from train.shared.types import RunRecord


@dataclass(frozen=True)
class PromptFigures:
    """One held-out prompt under one policy, means over its samples: reward, log π − log π_ref (KL) and −log π (entropy), in nats.

    How alike its samples are: `distinct` answers, as a share of the samples, and `self_bleu`, the mean BLEU of each against the others
    (Zhu et al. 2018). A policy that seeks one mode has few distinct answers and a self-BLEU near 1.
    """

    reward: float
    kl: float
    entropy: float
    words: float
    correct: float
    well_formed: float
    cited: float
    distinct: float
    self_bleu: float


@dataclass(frozen=True)
class MeasuredRun:
    """A run and its figures on every held-out prompt, in their order."""

    folder: Path
    record: RunRecord
    figures: tuple[PromptFigures, ...]

    @property
    def system(self) -> str:
        """What a claim about it must name, but for the strength of the tie: the method with its K, ε of pairs, and where pairs are of scored responses."""
        settings, smoothing = self.record.settings, self.record.label_smoothing
        method = "IPO" if settings.get("loss") == "ipo" else self.record.stage.upper()
        parts = [f"{method} K = {self.record.responses_per_prompt}"]
        parts += [] if smoothing is None else [f"ε = {smoothing:g}"]
        parts += ["best against worst"] if settings.get("best_against_worst") else []
        return ", ".join(parts)

    @property
    def seed(self) -> int:
        return int(self.record.settings["seed"])

    @property
    def reward(self) -> float:
        """Mean reward over all prompts."""
        return sum(one.reward for one in self.figures) / len(self.figures)

    @property
    def kl(self) -> float:
        """Mean KL to the reference over all prompts, in nats; an estimate, which may be a little below 0 near the reference."""
        return sum(one.kl for one in self.figures) / len(self.figures)


@dataclass(frozen=True)
class RewardAtKl:
    """A system's reward at a given KL, and its difference from the first system's there (None: it is the first).

    `by_seed` are the rewards of its seeds, each the mean over prompts: what another seed may bring.
    """

    system: str
    kl: float
    reward: float
    difference: Verdict | None
    by_seed: tuple[float, ...]
