"""Rewards of a response by component, each from 0 to 1, kept apart: training combines them by weights (DESIGN §5's r).

A component is a formula over one response and what it was asked; "grounded" needs the encoder and comes from data_synth/preferences/support.py.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from data_synth.preferences.reasons import normalise_answer
from graph.prompt.answer import parse_answer
from graph.prompt.match import word_f1
from graph.prompt.own_citations import own_citations
from graph.shared.types import AnswerForm
from graph.verify.support import Reading

LENGTH_WORDS = 120
"""A response of up to so many words loses nothing by its length; one of twice as many loses all."""


def answer_reward(response: str, golds: Sequence[str]) -> float:
    """1 when the answer equals a gold one (case, citations and outer punctuation apart), else the best F1 of their words, at most one half.

    >>> answer_reward("###Reason: So. ###Answer: Tarn.", ["tarn"]), answer_reward("in Tarn", ["Tarn"])
    (1.0, 0.3333333333333333)
    """
    answer = normalise_answer(parse_answer(response).answer)
    wanted = [normalise_answer(gold) for gold in golds]
    if answer in wanted:
        return 1.0
    return max((word_f1(answer.split(), gold.split()) for gold in wanted), default=0.0) / 2


def format_reward(response: str, form: AnswerForm = "reasoned") -> float:
    """1 for a response in the form that its prompt asks for, else 0.

    >>> format_reward("Tarn [2]", "cited"), format_reward("Tarn [2]")
    (1.0, 0.0)
    """
    return float(parse_answer(response, form).well_formed)


def citation_reward(response: str, passages: int) -> float:
    """The share of its own citations that name a passage of the prompt; 0 for none where there are passages, 1 for none where there are not.

    >>> citation_reward("So [1] [7].", 2), citation_reward("So.", 2), citation_reward("So.", 0)
    (0.5, 0.0, 1.0)
    """
    own = own_citations(response, passages)
    if not own.existing and not own.missing:
        return float(passages == 0)
    return len(own.existing) / (len(own.existing) + len(own.missing))


def gold_reward(response: str, gold: Collection[int], passages: int) -> float:
    """The share of its own citations that name a gold passage of the prompt; of a prompt without gold passages, 1 for none.

    >>> gold_reward("Tarn [2]", {2}, 3), gold_reward("Tarn [1][2]", {2}, 3), gold_reward("Tarn", {2}, 3)
    (1.0, 0.5, 0.0)
    >>> gold_reward("not in the documents", set(), 3)
    1.0
    """
    own = own_citations(response, passages)
    named = len(own.existing) + len(own.missing)
    return sum(number in gold for number in own.existing) / named if named else float(not gold)


def supported_reward(response: str, reading: Reading) -> float:
    """The share of its sentences that the passages of the prompt support; 0 where none can be judged, so that silence never helps."""
    return reading.share_supported(response) or 0.0


def length_reward(response: str) -> float:
    """1 up to LENGTH_WORDS words, falling to 0 at twice as many."""
    return min(1.0, max(0.0, 2 - len(response.split()) / LENGTH_WORDS))


def variety_reward(response: str) -> float:
    """Distinct words over words, 0.5 or more counting as 1: a text that runs in circles loses.

    >>> variety_reward("so so so so so so so so"), variety_reward("The ferry left Tarn.")
    (0.25, 1.0)
    """
    words = response.casefold().split()
    return min(1.0, 2 * len(set(words)) / len(words)) if words else 0.0
