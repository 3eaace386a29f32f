"""What would the judge say of answers of equal length? The win rate with the effect of length taken out.

Source: Dubois et al. 2024, "Length-Controlled AlpacaEval" (AlpacaEval 2 LC), Eq. 1-2, without its term for the difficulty of a question,
which needs many systems. Legend: V verdicts, Q questions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

RIDGE = 0.01
STEPS = 100
MIN_SHARE_OTHER_WAY = 0.05
"""Of the questions on which A's answer is longer, or shorter: with fewer, length and quality cannot be told apart."""


def length_controlled(wins_V: Sequence[float], extra_V: Sequence[float]) -> float | None:
    """A's win rate at equal lengths, σ(θ), from verdicts (1 A, ½ tie, 0 B) and how many characters longer A's answer is.

    P(A wins) = σ(θ + φ tanh(Δlength / std(Δlength))), fitted by logistic regression; then Δlength is set to 0. None where one
    side is the longer one in over 95 % of the verdicts of unequal length.
    """
    extra = np.asarray(extra_V, np.float64)
    unequal = extra[extra != 0]
    if len(unequal) == 0:
        return float(np.mean(wins_V)) if len(wins_V) else None
    if min((unequal > 0).mean(), (unequal < 0).mean()) < MIN_SHARE_OTHER_WAY:
        return None
    theta, _ = fit_logistic(np.asarray(wins_V, np.float64), np.tanh(extra / extra.std()))
    return float(_sigmoid(theta))


def fit_logistic(wins_V: NDArray[np.float64], length_V: NDArray[np.float64]) -> tuple[float, float]:
    """(θ, φ) that minimise the mean cross-entropy of σ(θ + φ length) with `wins_V` + ½ · 0.01 (θ² + φ²): damped Newton steps.

    The small ridge keeps both finite where length decides every verdict.
    """
    design_V2 = np.column_stack([np.ones_like(length_V), length_V])
    weights = np.zeros(2)
    for _ in range(STEPS):
        chance_V = _sigmoid(design_V2 @ weights)
        slope = design_V2.T @ (chance_V - wins_V) / len(wins_V) + RIDGE * weights
        curve = (design_V2.T * (chance_V * (1 - chance_V))) @ design_V2 / len(wins_V) + RIDGE * np.eye(2)
        step = np.linalg.solve(curve, slope)
        weights = weights - step / max(1.0, float(np.abs(step).max()))
        if np.abs(step).max() < 1e-10:
            break
    return float(weights[0]), float(weights[1])


def _sigmoid(value: NDArray[np.float64] | float) -> NDArray[np.float64]:
    return np.asarray(1 / (1 + np.exp(-np.asarray(value))))
