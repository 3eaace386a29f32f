"""The results of extraction: facts, occurrences of propositions, readings of passages, failures."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from graph.types import Document, Passage


@dataclass(frozen=True)
class Fact:
    """A subject–relation–object fact of a proposition; subject and object are among its entities."""

    subject: str
    relation: str
    object: str


@dataclass(frozen=True)
class Occurrence:
    """One proposition as extracted at one place: self-contained text, entities as written, and offsets in the document."""

    text: str
    entities: tuple[str, ...]
    start: int
    end: int
    topics: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()


@dataclass(frozen=True)
class PendingDocument:
    """The passages of one document that are still to be read, and the number of failed model calls for them."""

    document: Document
    passages: tuple[Passage, ...]
    attempts: int = 0


@dataclass(frozen=True)
class Failure:
    """The failure to read a passage: the last problem, the model's reply (truncated), and the number of attempts."""

    problem: str
    reply: str
    attempts: int


@dataclass(frozen=True)
class Reading:
    """The result for one passage: occurrences (`dropped` counts the parts of a reply that are malformed or not supported by the passage), or a failure."""

    passage: Passage
    reader: str
    occurrences: tuple[Occurrence, ...] = ()
    dropped: int = 0
    failure: Failure | None = None


ReadDocuments = Callable[[Iterator[PendingDocument]], Iterator[list[Reading]]]
"""An extractor: it takes pending documents whenever it has capacity, and yields groups of readings; each group is stored in one transaction."""
