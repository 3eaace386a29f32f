"""The data model of a benchmark: a task, the item read from one of its rows, and the loaded data.

Also helpers that several benchmarks share: options, paragraphs as documents, modegraph's own layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from data_synth.rows import SPLIT_OF
from graph.documents.questions import Question, parse_question
from graph.shared.ids import content_id
from graph.types import Document

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Item:
    """The content of one row of a public file: questions, and the documents that come with them (empty if they are in separate rows or files)."""

    questions: tuple[Question, ...]
    documents: tuple[Document, ...] = ()


Read = Callable[[Row], Item]
"""A function that converts a published row to an Item; it raises KeyError, TypeError, IndexError, AttributeError or ValueError for a malformed row."""


@dataclass(frozen=True)
class HubSet:
    """Where `datasets` finds a task on the hub, and how the rows there are read."""

    path: str
    name: str | None
    split: str
    read: Read


@dataclass(frozen=True)
class Task:
    """One benchmark. `metrics` are names in eval/metrics/registry.py, the main one first; `get` explains how to obtain the data.

    `read` is None if rows are only in modegraph's own layout. `gold` describes where gold documents come from; "" if there are none.
    """

    name: str
    title: str
    size: str
    licence: str
    metrics: tuple[str, ...]
    get: str
    read: Read | None = None
    hub: HubSet | None = None
    gold: str = ""


@dataclass(frozen=True)
class LoadedTask:
    """A task's questions in order, and its documents without duplicates; no documents if they are in a separate file."""

    questions: tuple[Question, ...]
    documents: tuple[Document, ...]


def choice_question(
    key: str,
    stem: str,
    options: Mapping[str, str],
    label: str,
    split: str = "test",
    kind: str = "choice",
    reasoning: str = "",
) -> Question:
    """A multiple-choice question whose text lists its options, "(A) … (B) …"; KeyError for an unknown label or split."""
    option_text = " ".join(f"({letter}) {option}" for letter, option in options.items())
    return Question(
        id=key,
        text=f"{stem.strip()} {option_text}",
        answers=(options[label],),
        kind=kind,
        split=SPLIT_OF[split],
        reasoning=reasoning,
        options=dict(options),
    )


def by_letter(options: Sequence[str]) -> dict[str, str]:
    """Options keyed by letters from A.

    >>> by_letter(["mouse", "hole"])
    {'A': 'mouse', 'B': 'hole'}
    """
    return {chr(ord("A") + index): option for index, option in enumerate(options)}


def paragraph(title: str, text: str) -> Document:
    """A paragraph as a document, identified by its title and the hash of its text, because titles repeat."""
    return Document(f"{title}#{content_id(title, text)[:8]}", title, text)


def read_native(row: Row, where: str) -> Item:
    """The question in a row of modegraph's own layout (graph/documents/questions.py); UserError for a malformed row, with its place `where`."""
    return Item((parse_question(row, where),))
