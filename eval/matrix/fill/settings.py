"""What a configuration of `modegraph eval run` may say: three axes of systems (indexes × retrievers × models) and the tasks."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from graph.retrieve.parts.settings import RetrieveSettings
from graph.shared.config import Settings


class TaskSettings(Settings):
    """One task: its questions, and the documents to index (none: corpus.jsonl beside the questions, or those that the task brings)."""

    task: str = Field(description="a name of `modegraph eval tasks`")
    source: str = Field(description="file or folder of the questions, below `data`")
    documents: str = Field("", description="what `modegraph index` would read, below `data`")
    index: str = Field("", description="a finished index of the documents, below `data`; none: one is made of them")
    split: Literal["train", "dev", "test"] | None = Field(None, description="only questions of this split")
    limit: int | None = Field(None, ge=1, description="only the first questions")


class StepSettings(Settings):
    """A command of modegraph to run before, unless `makes` is there already. Paths are those of the working directory.

    {name} in both is a value of `each` or of the configuration's `variables`.
    """

    run: str = Field(description="the command line, without the program's name")
    makes: str = Field(description="a file that is there once the command has ended well")
    each: dict[str, tuple[str, ...]] = Field(
        {}, description="values by name: the command is run for every combination of them, several at a time"
    )


class MatrixSettings(Settings):
    """Systems are indexes × retrievers × models, by their names; a retriever null asks the model without passages."""

    data: str = Field(".", description="folder that sources start from; relative to the configuration's file")
    tasks: dict[str, TaskSettings] = Field(min_length=1, description="what is asked, by name")
    retrievers: dict[str, RetrieveSettings | None] = Field(
        min_length=1, description="how to retrieve, by name; null asks the model without passages"
    )
    indexes: dict[str, dict[str, Any]] = Field({"": {}}, min_length=1, description="settings of the index, by name")
    models: dict[str, str] = Field({}, description="SPEC by name; none: retrieval alone is measured")
    helper: str = Field("", description="SPEC of a model that modes ask while retrieving")
    metrics: tuple[str, ...] = Field((), description="names; the first that applies leads. None: each task's own")
    baseline: str = Field("", description="the system that differences are from; the first by default")
    max_answer_tokens: int = Field(256, ge=1, description="longest answer, in tokens")
    empty_answers: Literal["refuse", "wrong"] = Field(
        "refuse", description="an empty answer ends its cell, or scores 0"
    )
    shown_questions: int = Field(12, ge=0, description="questions of each task whose evidence the report shows")
    workers: int = Field(2, ge=1, description="processes; each has one index at a time")
    seed: int = Field(0, ge=0, description="seed of the bootstrap")
    variables: dict[str, str] = Field({}, description="what {name} stands for in `prepare`, by name")
    prepare: tuple[StepSettings, ...] = Field(
        (), description="commands to run before: `run`, unless the file `makes` is there"
    )
