"""What every extractor returns: the propositions of one passage, with the names in them, as read from its text alone.

Corpus-wide decisions (which names are one entity, which are too common) are taken later, on all extractions together, so that
adding a document never changes what was read from another.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from graph.types import Document, Passage


@dataclass(frozen=True)
class Statement:
    """One proposition as read at one place: self-contained text, names as written, and offsets in the document."""

    text: str
    names: tuple[str, ...]
    start: int
    end: int


Extract = Callable[[Document, Sequence[Passage]], list[tuple[Statement, ...]]]
"""A document and its passages -> the statements of each passage, in order."""
