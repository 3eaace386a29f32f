"""What every benchmark set is made of: a task, one of its rows read, the whole of it loaded; and what several readers share: options, paragraphs as documents, our own layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graph.documents.questions import Question, parse_question
from graph.shared.ids import content_id
from graph.types import Document

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Item:
    """What one row of a public file holds: questions, and the documents that come with them (none: they come on their own)."""

    questions: tuple[Question, ...]
    documents: tuple[Document, ...] = ()


Read = Callable[[Row], Item]
"""One row as published to an Item; a row of another shape raises KeyError, TypeError, IndexError, AttributeError or ValueError."""


@dataclass(frozen=True)
class HubSet:
    """Where `datasets` finds a task, and how its rows are read where they differ from the published files'."""

    path: str
    name: str | None
    split: str
    read: Read


@dataclass(frozen=True)
class Task:
    """One benchmark. `metrics` are names of eval/metrics/registry.py, the first one leads; `get` says how to come by the data.

    `gold` tells where gold documents come from, in words; "" where there are none.
    """

    name: str
    title: str
    size: str
    licence: str
    metrics: tuple[str, ...]
    get: str
    read: Read
    hub: HubSet | None = None
    gold: str = ""


@dataclass(frozen=True)
class Loaded:
    """A task's questions in order, and its documents, each once; no documents where they lie in a file of their own."""

    questions: tuple[Question, ...]
    documents: tuple[Document, ...]


SPLITS = {"train": "train", "validation": "dev", "dev": "dev", "test": "test"}


def choice_question(
    key: str,
    stem: str,
    options: Mapping[str, str],
    label: str,
    split: str = "test",
    kind: str = "choice",
    reasoning: str = "",
) -> Question:
    """A multiple-choice question that tells its options, "(A) … (B) …"; KeyError for a label that is no option's."""
    told = " ".join(f"({letter}) {option}" for letter, option in options.items())
    return Question(
        id=key,
        text=f"{stem.strip()} {told}",
        answers=(options[label],),
        kind=kind,
        split=SPLITS[split],
        reasoning=reasoning,
        options=dict(options),
    )


def lettered(options: Sequence[str]) -> dict[str, str]:
    """Options by letters from A.

    >>> lettered(["mouse", "hole"])
    {'A': 'mouse', 'B': 'hole'}
    """
    return {chr(ord("A") + place): option for place, option in enumerate(options)}


def paragraph(title: str, text: str) -> Document:
    """A paragraph as a document: its title and the hash of its text name it, because titles repeat."""
    return Document(f"{title}#{content_id(title, text)[:8]}", title, text)


def own_layout(row: Row) -> Item:
    """A row of our own form (graph/documents/questions.py)."""
    return Item((parse_question(row, "this row"),))
