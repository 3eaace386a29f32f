"""The nouns of a matrix: a system, a task with its data, a cell to fill, and what a finished cell holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from graph.documents.questions import Question
from graph.retrieve.parts.settings import RetrieveSettings
from graph.store.settings import IndexSettings


@dataclass(frozen=True)
class System:
    """One way to answer. `retrieve` None: no passages; `model` "": nothing but retrieval is measured."""

    name: str
    index: IndexSettings
    retrieve: RetrieveSettings | None
    model: str


@dataclass(frozen=True)
class TaskData:
    """A task of the configuration, its data read: `documents` is what to index, `documents_hash` of its content.

    `index` is a finished index to use; with None one is made.
    """

    name: str
    benchmark: str
    questions: tuple[Question, ...]
    shown: frozenset[str]
    documents: Path
    documents_hash: str
    index: Path | None
    metrics: tuple[str, ...]


@dataclass(frozen=True)
class Cell:
    """One system on one task; `key` is the hash of all that its outcome depends on but `code`, the version of the code that fills it.

    `index_key` is the hash of all that its index comes from, again without the code.
    """

    key: str
    code: str
    index_key: str
    system: System
    task: TaskData


@dataclass(frozen=True)
class Group:
    """Cells that share an index, which lies in `index_folder`."""

    index_folder: Path
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class QuestionResult:
    """What a system did for one question.

    `values` are the metrics that need passages' texts; seconds exclude the encoder, which has its own, and answers share those of
    their batch. `layers` counts the passages and summaries that were found, by the layer of the hierarchy that each is of, passages in
    layer 0. Of `calls`, `replayed` came from the helper's ledger and count with the tokens and time of their making, but for the time of
    `untimed` ones, not known. `evidence` (title, source, text) and `steps` are kept of the questions that the report shows.
    """

    id: str
    ranked: tuple[str, ...]
    answer: str | None
    text: str | None
    values: Mapping[str, float | None]
    seconds: float
    encoder_seconds: float
    answer_seconds: float
    prompt_tokens: int
    completion_tokens: int
    calls: int
    replayed: int = 0
    untimed: int = 0
    layers: tuple[int, ...] = ()
    evidence: tuple[tuple[str, str, str], ...] = ()
    steps: tuple[str, ...] = ()


@dataclass(frozen=True)
class Failure:
    """A cell that could not be filled, and why."""

    system: str
    task: str
    problem: str


@dataclass(frozen=True)
class Matrix:
    """All systems and tasks, and the cells in report order."""

    systems: tuple[System, ...]
    tasks: tuple[TaskData, ...]
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Outcome:
    """What a run left: cells found finished, cells filled now (`again` of them, since other code filled them before), and failures."""

    found: int
    filled: int
    again: int
    failures: tuple[Failure, ...] = field(default=())
