"""Reward margins compared with values computed by hand."""

import pytest

from eval.compare.measures import reward_margin, reward_margin_per_token
from eval.comparison import PairScore

POLICY, REFERENCE = PairScore(-10.0, -6.0, 20, 2), PairScore(-20.0, -8.0, 20, 2)


def test_margins_match_values_computed_by_hand():
    # Δ_w = 10, Δ_l = 2: 0.5·(10 − 2) = 4; per token 0.5·(10/20 − 2/2) = −0.25: the first margin is positive only because of the lengths.
    assert reward_margin(POLICY, REFERENCE, 0.5) == pytest.approx(4.0)
    assert reward_margin_per_token(POLICY, REFERENCE, 0.5) == pytest.approx(-0.25)
    assert reward_margin(REFERENCE, REFERENCE, 0.5) == 0.0
