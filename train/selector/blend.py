"""The light selector's logit and the cross-encoder's in one: weight, base and temperature with the lowest log loss on dev.

Legend: r examples that the cross-encoder has read.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from graph.retrieve.learned.cross import Blend
from graph.shared.types import Ints
from train.shared.calibrate import TEMPERATURES, log_loss

Doubles = NDArray[np.float64]
WEIGHTS, BASES = (0.0, 10.0), (-20.0, 20.0)


def fit_blend(light_r: Doubles, cross_r: Doubles, label_r: Ints, depth: int) -> Blend:
    """The blend of `depth` propositions, its threshold still 0; weight 0 where reading does not help.

    In the two logits σ((light + weight · cross + base) / temperature) is a logistic regression, so the loss has one lowest point.
    """

    def loss(at: Doubles) -> float:
        weight, base, log_temperature = at
        return log_loss(light_r + weight * cross_r + base, label_r, float(np.exp(log_temperature)))

    low, high = np.log(TEMPERATURES)
    found = minimize(loss, np.array([1.0, 0.0, 0.0]), method="L-BFGS-B", bounds=(WEIGHTS, BASES, (low, high)))
    weight, base, log_temperature = found.x.tolist()
    return Blend(weight, base, float(np.exp(log_temperature)), threshold=0.0, depth=depth)
