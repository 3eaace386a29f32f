"""From judgements to figures: win rate, ties, agreement of the two orders, position bias, length-controlled win rate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from eval.judge.length import length_controlled
from eval.judge.types import CRITERIA, CriterionResult, Judgement, Word
from eval.shared.statistics import Interval, bootstrap_mean, holm, sign_test

A_WINS: Mapping[Word, float] = {"1": 1.0, "tie": 0.5, "2": 0.0}
B_WINS: Mapping[Word, float] = {"1": 0.0, "tie": 0.5, "2": 1.0}


def score_judgements(judgements: Sequence[Judgement], seed: int = 0) -> dict[str, CriterionResult]:
    """Every criterion; p is the sign test of A's wins against its losses over questions, corrected (Holm) over the criteria."""
    complete = {name: [j for j in judgements if is_complete(j, name)] for name in CRITERIA}
    p_values = {name: _sign_p([wins_of(j, name) for j in kept]) for name, kept in complete.items()}
    corrected = holm(p_values)
    return {
        name: _result(name, judgements, kept, p_values[name], corrected[name], seed) for name, kept in complete.items()
    }


def is_complete(judgement: Judgement, name: str) -> bool:
    """Whether both orders gave a valid verdict."""
    return "invalid" not in (judgement.a_first[name], judgement.b_first[name])


def wins_of(judgement: Judgement, name: str) -> float:
    """A's share of the two verdicts of a complete pair: 1, ½ for a tie or a disagreement, 0, or between."""
    return (A_WINS[judgement.a_first[name]] + B_WINS[judgement.b_first[name]]) / 2


def _result(
    name: str, judgements: Sequence[Judgement], kept: Sequence[Judgement], p: float, corrected_p: float, seed: int
) -> CriterionResult:
    words = [(j.a_first[name], j.b_first[name]) for j in kept]
    same_answer = [A_WINS[a] == B_WINS[b] for a, b in words]
    same_place = [a == b and a != "tie" for a, b in words]
    verdicts = [word for j in judgements for word in (j.a_first[name], j.b_first[name])]
    wins_V = [win for a, b in words for win in (A_WINS[a], B_WINS[b])]
    extra_V = [float(len(j.pair.first) - len(j.pair.second)) for j in kept for _ in range(2)]
    wins_Q = [wins_of(j, name) for j in kept]
    return CriterionResult(
        win_rate=bootstrap_mean(wins_Q, seed=seed) if kept else Interval(math.nan, math.nan, math.nan),
        ties=_share([word == "tie" for pair in words for word in pair]),
        agreement=_share(same_answer),
        position_bias=_share(same_place),
        first_place=_share([same and a == "1" for same, (a, _) in zip(same_place, words, strict=True)]),
        length_controlled=length_controlled(wins_V, extra_V),
        p=p,
        corrected_p=corrected_p,
        complete=len(kept),
        incomplete=len(judgements) - len(kept),
        invalid=verdicts.count("invalid"),
    )


def _sign_p(wins_Q: Sequence[float]) -> float:
    return sign_test(wins_Q, [0.5] * len(wins_Q)) if wins_Q else 1.0


def _share(true: Sequence[bool]) -> float:
    return sum(true) / len(true) if true else math.nan
