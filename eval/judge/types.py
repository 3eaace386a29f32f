"""The nouns of judging: two answers to one question, what the judge said of them in both orders, and what follows for a criterion.

The criteria are those of ToPG (App. C) and PankRAG (App. A.2.1); their prompt texts are in eval/prompts/judge.txt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from eval.shared.statistics import Interval

CRITERIA = ("comprehensiveness", "diversity", "logicality", "relevance", "coherence", "empowerment", "overall")
Word = Literal["1", "2", "tie", "invalid"]
"""What a judge said: the answer shown first, the one shown second, neither, or nothing that can be used."""


@dataclass(frozen=True)
class AnswerPair:
    """One question and the two answers to it."""

    id: str
    question: str
    first: str
    second: str


@dataclass(frozen=True)
class Judgement:
    """What was said of one pair, by criterion: with A shown first, and with B shown first. `problems` tell what made replies invalid."""

    pair: AnswerPair
    a_first: Mapping[str, Word]
    b_first: Mapping[str, Word]
    problems: tuple[str, ...]


@dataclass(frozen=True)
class CriterionResult:
    """One criterion over all pairs, as shares of 1; `win_rate` is A's, ties counting half, over the `complete` pairs.

    A pair is complete when both orders gave a valid verdict; the other `incomplete` ones are counted here and in nothing else.
    `invalid` counts verdicts, of 2 a pair. `agreement`: both orders name the same answer, or a tie. `position_bias`: both orders
    name the same place, of which `first_place` always the first. `length_controlled` is A's win rate at equal lengths, None where
    the lengths of A and B leave it open.
    """

    win_rate: Interval
    ties: float
    agreement: float
    position_bias: float
    first_place: float
    length_controlled: float | None
    p: float
    corrected_p: float
    complete: int
    incomplete: int
    invalid: int
