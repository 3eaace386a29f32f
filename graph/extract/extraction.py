"""What an extraction gives: facts, occurrences of propositions, readings of passages, failures."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from graph.types import Document, Passage


@dataclass(frozen=True)
class Fact:
    """A subject–relation–object fact inside a proposition; subject and object are among its entities."""

    subject: str
    relation: str
    object: str


@dataclass(frozen=True)
class Occurrence:
    """One proposition as read at one place: self-contained text, entities as written, and offsets in the document."""

    text: str
    entities: tuple[str, ...]
    start: int
    end: int
    topics: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()


@dataclass(frozen=True)
class PendingDocument:
    """Passages of one document that are still to be read, and how many times a model was asked for them in vain."""

    document: Document
    passages: tuple[Passage, ...]
    attempts: int = 0


@dataclass(frozen=True)
class Failure:
    """Why a passage could not be read: the last problem, what the model wrote (cut), and all attempts so far."""

    problem: str
    reply: str
    attempts: int


@dataclass(frozen=True)
class Reading:
    """What came of one passage: occurrences (`dropped` counts the parts of a reply that the passage does not support), or a failure."""

    passage: Passage
    reader: str
    occurrences: tuple[Occurrence, ...] = ()
    dropped: int = 0
    failure: Failure | None = None


Extract = Callable[[Document, Sequence[Passage]], list[tuple[Occurrence, ...]]]
"""A document and all its passages -> the occurrences of each passage, in order."""

ReadDocuments = Callable[[Iterator[PendingDocument]], Iterator[list[Reading]]]
"""The one signature of an extractor: it pulls what waits as it has room, and yields groups of readings, each to be kept at once."""
