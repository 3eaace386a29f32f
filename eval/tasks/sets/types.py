"""The nouns of tasks: a benchmark, one of its rows read, and the whole of it loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from graph.documents.questions import Question
from graph.shared.types import Document

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
