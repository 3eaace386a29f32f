"""Scores of an answer to a question over passages: exact match, word F1, refusal and citations. Shared by training and evaluation."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from graph.answer.citations import own_citations, short_answer
from graph.answer.match import exact_match, token_f1
from graph.answer.prompt import is_no_answer


@dataclass(frozen=True)
class ReadingScore:
    """Scores from 0 to 1. For a question without an answer, refusing is right: `exact` and `f1` are 1 for a refusal and 0 otherwise.

    `cites` is 1 if the text cites at least one existing passage, `cites_gold` if it does so and all of those cited are gold.
    """

    exact: float
    f1: float
    refuses: float
    cites: float
    cites_gold: float


def score_reading(text: str, answers: Sequence[str], gold: Collection[int], passages: int) -> ReadingScore:
    """Score a model's text against the accepted answers (empty: unanswerable) and the numbers of the gold passages.

    >>> score_reading("Tarn [2]", ["Tarn"], {2}, 3)
    ReadingScore(exact=1.0, f1=1.0, refuses=0.0, cites=1.0, cites_gold=1.0)
    >>> score_reading("Tarn [2][3]", ["Tarn"], {2}, 3).cites_gold
    0.0
    >>> score_reading("not in the documents", [], set(), 3).exact
    1.0
    """
    answer = short_answer(text)
    refuses = is_no_answer(answer)
    cited = own_citations(text, passages).existing
    if answers:
        exact, f1 = (0.0, 0.0) if refuses else (exact_match(answer, answers), token_f1(answer, answers))
    else:
        exact = f1 = float(refuses)
    cites_gold = bool(cited) and all(number in gold for number in cited)
    return ReadingScore(exact, f1, float(refuses), float(bool(cited)), float(cites_gold))
