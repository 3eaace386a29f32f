"""The settings of `modegraph eval run`, and the data model of a run: systems (indexes × retrievers × models), tasks with their data, cells with
their results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from graph.config import Settings
from graph.documents.questions import Question
from graph.retrieve.parts.query import RetrieveSettings
from graph.store.index_settings import IndexSettings


class TaskSettings(Settings):
    """One task: its questions, and the documents to index (by default corpus.jsonl in `source`, or the documents that come with the task)."""

    task: str = Field(description="a task listed by `modegraph eval tasks`")
    source: str = Field(description="file or folder of the questions, below `data`")
    documents: str = Field("", description="file or folder to index, below `data`")
    index: str = Field("", description="a finished index of the documents, below `data`; empty: one is built")
    split: Literal["train", "dev", "test"] | None = Field(
        None, description="only questions of this split; a question without a split counts as test"
    )
    limit: int | None = Field(None, ge=1, description="largest number of questions; the first are used")


class MatrixSettings(Settings):
    """Systems are all combinations of an index, a retriever and a model, named by their parts; with a null retriever, the model answers without passages."""

    data: str = Field(".", description="folder of all sources; relative to the configuration file")
    tasks: dict[str, TaskSettings] = Field(min_length=1, description="tasks, by name")
    retrievers: dict[str, RetrieveSettings | None] = Field(
        min_length=1, description="how to retrieve, by name; null: the model answers without passages"
    )
    indexes: dict[str, dict[str, Any]] = Field({"": {}}, min_length=1, description="settings of the index, by name")
    models: dict[str, str] = Field({}, description="SPEC by name; empty: only retrieval is measured")
    helper: str = Field("", description="SPEC of a model that retrieval modes call")
    metrics: tuple[str, ...] = Field(
        (),
        description="names of metrics; systems are compared by the first that applies to all; empty: the metrics of each task",
    )
    baseline: str = Field("", description="system that the others are compared with; the first by default")
    max_answer_tokens: int = Field(256, ge=1, description="longest answer, in tokens")
    empty_answers: Literal["refuse", "wrong"] = Field(
        "refuse", description="what to do with an empty answer: refuse fails its cell, wrong scores it 0"
    )
    shown_questions: int = Field(
        12, ge=0, description="number of questions of each task whose evidence the report shows"
    )
    seed: int = Field(0, ge=0, description="seed of the bootstrap, and of the choice of shown questions")


@dataclass(frozen=True)
class System:
    """One way to answer. `retrieve` None: no passages; `model` "": only retrieval is measured."""

    name: str
    index: IndexSettings
    retrieve: RetrieveSettings | None
    model: str


@dataclass(frozen=True)
class TaskData:
    """A task of the configuration with its data, and the ids of its `shown` questions.

    If `index`, a finished index to use, is None, one is built: `documents` is the file or folder to index, `documents_hash` the hash of its content.
    Otherwise they are the folder of `index` and the hash of its manifest.
    """

    name: str
    benchmark: str
    questions: tuple[Question, ...]
    shown: frozenset[str]
    documents: Path
    documents_hash: str
    index: Path | None
    metrics: tuple[str, ...]

    @cached_property
    def by_id(self) -> dict[str, Question]:
        """The questions by their ids."""
        return {question.id: question for question in self.questions}


@dataclass(frozen=True)
class Cell:
    """One system on one task: the `file` of its results, named by the hash of its settings and inputs, and the folder of its index."""

    file: Path
    index: Path
    system: System
    task: TaskData


@dataclass(frozen=True)
class QuestionResult:
    """A system's result for one question.

    `values` contains the metrics that need the passages' texts. `seconds` excludes the encoder's time; `answer_seconds` is an equal share of its
    batch's time. `layers` counts the passages and summaries found in each layer of the hierarchy, passages in layer 0.
    `replayed` is the number of `calls` answered from the helper's ledger; these count with their original tokens and time.
    `evidence` (title, source, text) and `steps` are only stored for the questions that the report shows.
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
    layers: tuple[int, ...] = ()
    evidence: tuple[tuple[str, str, str], ...] = ()
    steps: tuple[str, ...] = ()

    @property
    def all_seconds(self) -> float:
        """Seconds from the question to the answer."""
        return self.seconds + self.encoder_seconds + self.answer_seconds

    @property
    def tokens(self) -> int:
        """Tokens read and written by models."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True)
class CellContent:
    """The content of a finished cell: the `revision` of the code that wrote it, and the results in the order of the task's questions."""

    revision: str
    results: tuple[QuestionResult, ...]


@dataclass(frozen=True)
class Failure:
    """A cell that could not be filled, and the reason."""

    system: str
    task: str
    problem: str
