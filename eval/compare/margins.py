"""What follows from log-probabilities of a pair: the implicit reward's margin. No torch: measures of retrieval alone load this too.

Source: DPO (Rafailov et al. 2023, Eq. 5): r(x, y) = β [log π_θ(y|x) − log π_ref(y|x)] + a constant of x.
"""

from __future__ import annotations

from eval.shared.types import PairScore


def reward_margin(policy: PairScore, reference: PairScore, beta: float) -> float:
    """β (Δ_w − Δ_l), Δ = log π_θ(y|x) − log π_ref(y|x): above 0, the policy came to prefer the chosen side."""
    chosen = policy.chosen_logp - reference.chosen_logp
    rejected = policy.rejected_logp - reference.rejected_logp
    return beta * (chosen - rejected)


def reward_margin_per_token(policy: PairScore, reference: PairScore, beta: float) -> float:
    """β (Δ_w / |y_w| − Δ_l / |y_l|): the same margin where a longer side has no more say than a shorter one."""
    chosen = (policy.chosen_logp - reference.chosen_logp) / policy.chosen_tokens
    rejected = (policy.rejected_logp - reference.rejected_logp) / policy.rejected_tokens
    return beta * (chosen - rejected)
