"""Entries that may become training data, and of each reader the last word on each thing."""

from __future__ import annotations

from collections.abc import Iterable

from data_synth.types import Dropped
from graph.feedback.types import Correction, Feedback, GivenAnswer, Preference, RightPassage, Vote

NO_CONSENT = "no consent to training"
TAKEN_BACK = "said anew later by the same reader"


def last_words(entries: Iterable[Feedback]) -> tuple[list[Feedback], list[Dropped]]:
    """The entries to learn from, oldest first, and what was dropped.

    An entry without consent also takes back what the same reader said of the same thing before.
    """
    last: dict[tuple[object, ...], Feedback] = {}
    dropped: list[Dropped] = []
    for entry in entries:
        key = (entry.user, folded(entry.question), *_what(entry))
        if last.pop(key, None) is not None:
            dropped.append(Dropped(TAKEN_BACK))
        if entry.consent:
            last[key] = entry
        else:
            dropped.append(Dropped(NO_CONSENT))
    return list(last.values()), dropped


def folded(question: str) -> str:
    """What makes two questions the same: their words, whatever their case and the space between them."""
    return " ".join(question.casefold().split())


def _what(entry: Feedback) -> tuple[object, ...]:
    """What an entry speaks of; a reader has one opinion of it."""
    match entry.said:
        case Vote(answer):
            return ("vote", written(answer))
        case Correction(answer):
            return ("correction", written(answer))
        case RightPassage(passage_id):
            return ("passage", passage_id)
        case Preference(first, second):
            return ("preference", frozenset((written(first), written(second))))


def written(answer: GivenAnswer) -> tuple[object, ...]:
    """What makes two answers the same, whoever wrote them: their words and what they were written from."""
    return (answer.text, answer.reasoning, answer.context_ids)
