"""The nouns of feedback: an answer as it was shown, what a reader says of it, and the entry that keeps both.

Passages are kept by id, so that a document's text goes when the document goes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Rating = Literal["up", "down"]
Better = Literal["first", "second", "neither"]


@dataclass(frozen=True)
class GivenAnswer:
    """What a model wrote: the answer and its reasoning with their citations [n], where n counts `context_ids` from 1.

    `context_ids` are the ids of all that the model read (passages, propositions, summaries), found by `mode`.
    """

    model: str
    text: str
    reasoning: str = ""
    context_ids: tuple[str, ...] = ()
    mode: str = ""


@dataclass(frozen=True)
class Vote:
    """An answer is good, or it is not."""

    answer: GivenAnswer
    rating: Rating


@dataclass(frozen=True)
class Correction:
    """What the answer should have been, and, where the reader says so, why and by which passages."""

    answer: GivenAnswer
    corrected: str
    reasoning: str = ""
    passage_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class RightPassage:
    """The passage that answers the question, out of those that were shown."""

    passage_id: str
    shown_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class Preference:
    """Which of two answers to the question is better."""

    first: GivenAnswer
    second: GivenAnswer
    better: Better


Said = Vote | Correction | RightPassage | Preference
KINDS: Mapping[str, type[Any]] = {
    "vote": Vote,
    "correction": Correction,
    "passage": RightPassage,
    "preference": Preference,
}


@dataclass(frozen=True)
class Feedback:
    """One entry: what the user called `user` said of the answers to `question` at `at` (UTC, ISO 8601).

    `question` stands alone, as it was searched for. `consent` is whether the entry may become training data.
    """

    id: str
    user: str
    at: str
    consent: bool
    question: str
    said: Said


FeedbackRow = tuple[str, str, str, int, str, str, str]
"""The columns of an entry where it is kept: id, user, at, consent, kind, question, said."""


class FeedbackFull(Exception):
    """As much is kept as may be."""


def kind_of(said: Said) -> str:
    """The name of a kind in KINDS."""
    return next(name for name, kind in KINDS.items() if isinstance(said, kind))


def said_to_json(said: Said) -> dict[str, Any]:
    """The fields of what was said, by name."""
    return asdict(said)


def said_from_json(kind: str, values: Mapping[str, Any]) -> Said:
    """The inverse of `said_to_json`; KeyError for an unknown kind, TypeError for other fields than its own."""
    read = {name: _answer(value) if isinstance(value, Mapping) else _tuple(value) for name, value in values.items()}
    said: Said = KINDS[kind](**read)
    return said


def row_of(entry: Feedback) -> FeedbackRow:
    """An entry as it is kept."""
    said = json.dumps(said_to_json(entry.said))
    return entry.id, entry.user, entry.at, int(entry.consent), kind_of(entry.said), entry.question, said


def entry_of(row: FeedbackRow) -> Feedback:
    """The inverse of `row_of`."""
    identity, user, at, consent, kind, question, said = row
    return Feedback(identity, user, at, bool(consent), question, said_from_json(kind, json.loads(said)))


def _answer(values: Mapping[str, Any]) -> GivenAnswer:
    return GivenAnswer(**{name: _tuple(value) for name, value in values.items()})


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
