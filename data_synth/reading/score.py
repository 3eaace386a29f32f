"""How good an answer over passages is: exact match and F1 of its words, whether it refuses, what it cites. One rule for training and evaluation."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from graph.answer.citations import check_citations, own_citations
from graph.answer.match import exact_match, token_f1
from graph.answer.prompt import is_no_answer, parse_answer


@dataclass(frozen=True)
class ReadingScore:
    """Each from 0 to 1. Of a question without an answer, refusing is right: `exact` and `f1` are 1 then and 0 otherwise.

    `cites` is 1 where a passage that exists is cited, `cites_gold` where each cited one is a gold one.
    """

    exact: float
    f1: float
    refuses: float
    cites: float
    cites_gold: float


def score_reading(text: str, answers: Sequence[str], gold: Collection[int], passages: int) -> ReadingScore:
    """A model's text against the accepted answers (none: nothing answers) and the numbers of the gold passages.

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
    return ReadingScore(
        exact, f1, float(refuses), float(bool(cited)), float(bool(cited) and all(one in gold for one in cited))
    )


def short_answer(text: str) -> str:
    """What a text answers, whatever its form, without citations, in one line.

    >>> short_answer("###Reason: So [1]. ###Answer: Tarn"), short_answer("Tarn [2]"), short_answer("")
    ('Tarn', 'Tarn', '')
    """
    return " ".join(check_citations(parse_answer(text).answer, 0).text.split())
