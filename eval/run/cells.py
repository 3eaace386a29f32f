"""The cells of a configuration, and their files on disk.

A cell is one JSON file, written atomically and named by the hash of its settings and of the contents of all files and local models that the
settings name: a killed run loses only unfinished cells, and a changed input gives a new cell. The hash does not cover the code; the file records the
revision that wrote it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from data_synth.relevance.relevance_form import CORPUS
from eval.metrics.registry import find_metric
from eval.run.config import Cell, CellContent, MatrixSettings, QuestionResult, System, TaskData, TaskSettings
from eval.tasks.catalogue import find_task, load_task, question_row, write_task
from graph.config import parse_settings
from graph.errors import UserError
from graph.models.checkpoint import model_name
from graph.shared.ids import checksum, content_id
from graph.shared.jsonl import write_json
from graph.store.index_settings import IndexSettings
from graph.store.manifest import MANIFEST
from graph.types import OpenEncoder

FORMAT = 3
"""The version of the layout of a cell's file."""
CELLS, INDEXES, CORPORA = "cells", "indexes", "corpora"
AddFingerprints = Callable[[Mapping[str, Any]], dict[str, Any]]


def list_cells(settings: MatrixSettings, base: Path, out: Path, open_encoder: OpenEncoder) -> tuple[Cell, ...]:
    """The cells of every task with every system, from the data in the folder `base` / `settings.data`; UserError for invalid data, metrics or settings."""
    systems = systems_of(settings)
    names = [system.name for system in systems]
    if settings.baseline and settings.baseline not in names:
        raise UserError(f"baseline {settings.baseline!r}", f"one of the systems {', '.join(names)}", "name one of them")
    for name in settings.metrics:
        find_metric(name)
    tasks = tuple(
        _task_data(name, task_settings, settings, base, out) for name, task_settings in settings.tasks.items()
    )
    add_fingerprints = fingerprint_adder(open_encoder)
    return tuple(_cell(system, task, settings, add_fingerprints, out) for task in tasks for system in systems)


def systems_of(settings: MatrixSettings) -> tuple[System, ...]:
    """indexes × retrievers × models, named by their parts. UserError for a system with neither retrieval nor a model, and for a repeated name."""
    systems: dict[str, System] = {}
    for (index, values), (retriever, retrieve), (model, spec) in product(
        settings.indexes.items(), settings.retrievers.items(), settings.models.items() or [("", "")]
    ):
        if retrieve is None and not spec:
            found = f"retrievers.{retriever}: no retrieval and no model"
            raise UserError(found, "at least one of the two", "add models")
        index_settings = parse_settings(IndexSettings, values, f"indexes.{index}")
        name = " + ".join(part for part in (retriever, index, model) if part)
        if name in systems:
            expected = "different names, which join the names of retriever, index and model"
            raise UserError(f"two systems are named {name!r}", expected, "rename one of these parts")
        systems[name] = System(name, index_settings, retrieve, spec)
    return tuple(systems.values())


def _task_data(name: str, task_settings: TaskSettings, settings: MatrixSettings, base: Path, out: Path) -> TaskData:
    benchmark, data = find_task(task_settings.task), base / settings.data
    source = data / task_settings.source
    loaded = load_task(benchmark, source)
    questions = [question for question in loaded.questions if task_settings.split in (None, question.split)]
    questions = questions[: task_settings.limit]
    if not questions:
        found = f"tasks.{name}: no questions of split {task_settings.split}"
        raise UserError(found, "train, dev or test", "change the split")
    if task_settings.index and settings.indexes != {"": {}}:
        found = f"tasks.{name}.index together with `indexes`"
        raise UserError(found, "an existing index, or settings to make one", "leave out one of the two")
    documents = data / task_settings.documents if task_settings.documents else source / CORPUS
    if loaded.documents and not task_settings.documents:
        write_task(loaded, out / CORPORA / name)
        documents = out / CORPORA / name / CORPUS
    index = data / task_settings.index if task_settings.index else None
    if index is not None and not (index / MANIFEST).is_file():
        found = f"tasks.{name}: {index} is not a finished index"
        raise UserError(found, "one made by `modegraph index`", "check the path")
    if index is None and not documents.exists():
        found = f"tasks.{name}: {documents} does not exist"
        raise UserError(found, "documents to index", f"set tasks.{name}.documents")
    sample = sorted(questions, key=lambda question: content_id("shown", str(settings.seed), question.id))
    return TaskData(
        name=name,
        benchmark=task_settings.task,
        questions=tuple(questions),
        shown=frozenset(question.id for question in sample[: settings.shown_questions]),
        documents=index or documents,
        documents_hash=content_hash(index / MANIFEST if index else documents),
        index=index,
        metrics=settings.metrics or benchmark.metrics,
    )


def _cell(
    system: System, task: TaskData, settings: MatrixSettings, add_fingerprints: AddFingerprints, out: Path
) -> Cell:
    index, retrieve = add_fingerprints(system.index.model_dump()), system.retrieve
    inputs = {
        "format": FORMAT,
        "questions": [question_row(question) for question in task.questions],
        "shown": sorted(task.shown),
        "documents": task.documents_hash,
        "index": index,
        "retriever": add_fingerprints(retrieve.model_dump()) if retrieve is not None else None,
        "models": add_fingerprints({"model": system.model, "helper": settings.helper}),
        "values": sorted(fill_time_metrics(task.metrics)),
    }

    def file_with(empty_answers: str) -> Path:
        answer = {"max_answer_tokens": settings.max_answer_tokens, "empty_answers": empty_answers}
        return out / CELLS / f"{_hash_of(inputs | {'answer': answer if system.model else None})}.json"

    # A finished cell that refuses empty answers contains none, so `wrong` reuses it.
    refusing = file_with("refuse")
    file = refusing if refusing.is_file() else file_with(settings.empty_answers)
    own_index = out / INDEXES / _hash_of([task.documents_hash, index])
    return Cell(file, task.index or own_index, system, task)


def _hash_of(value: Any) -> str:
    return content_id(json.dumps(value, sort_keys=True, ensure_ascii=False))


def fill_time_metrics(metrics: tuple[str, ...]) -> list[str]:
    """The metrics computed while a cell is filled, because they need the texts of the passages."""
    return [name for name in metrics if find_metric(name).needs in ("context", "grounding")]


MODELS = ("model", "helper", "summary_model", "extractor_model")
FILES = ("import_file", "extractor_examples", "selector", "reranker")
"""Settings that name models, and those that may name a file or folder."""


def fingerprint_adder(open_encoder: OpenEncoder) -> AddFingerprints:
    """A function that adds to settings the fingerprints of the encoder, models and files that they name; each is read once."""

    @cache
    def fingerprint(key: str, name: str) -> str:
        if key in MODELS:
            return model_name(name.partition(":")[2] or name)
        if key in FILES:
            return content_hash(path) if (path := Path(name).expanduser()).exists() else ""
        try:
            return open_encoder(name).fingerprint
        except UserError:
            return ""  # Filling a cell raises the error again, so that only the cells of this encoder fail.

    def add_fingerprints(settings: Mapping[str, Any]) -> dict[str, Any]:
        keys = [key for key in ("encoder", *MODELS, *FILES) if settings.get(key)]
        return {**settings, "contents": {key: fingerprint(key, settings[key]) for key in keys}}

    return add_fingerprints


def content_hash(path: Path) -> str:
    """The hash of a file, or of a folder's files and their relative paths."""
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    return content_id(*(part for file in files for part in (file.relative_to(path).as_posix(), checksum(file))))


def write_cell(cell: Cell, content: CellContent, seconds: float) -> None:
    """Write a finished cell, with fields at the start that describe it."""
    cell.file.parent.mkdir(parents=True, exist_ok=True)
    retrieve = cell.system.retrieve
    head: dict[str, Any] = {
        "system": cell.system.name,
        "task": cell.task.name,
        "model": cell.system.model,
        "retrieve": retrieve.model_dump() if retrieve is not None else None,
        "index": cell.system.index.model_dump(),
        "seconds": round(seconds, 3),
    }
    write_json(cell.file, head | asdict(content))


def read_cell(cell: Cell) -> CellContent:
    """A finished cell, its results in the order of the task's questions; UserError for any other file."""
    try:
        values = json.loads(cell.file.read_text(encoding="utf-8"))
        results = {row["id"]: _question_result(row) for row in values["results"]}
        return CellContent(values["revision"], tuple(results[key] for key in cell.task.by_id))
    except (ValueError, KeyError, TypeError) as problem:
        found = f"{cell.file}: {type(problem).__name__} {problem}"
        raise UserError(found, "a finished cell", "remove the file and run again") from None


def _question_result(row: dict[str, Any]) -> QuestionResult:
    lists = {name: tuple(row[name]) for name in ("ranked", "layers", "steps")}
    evidence = tuple((title, source, text) for title, source, text in row["evidence"])
    return QuestionResult(**{**row, **lists, "evidence": evidence})
