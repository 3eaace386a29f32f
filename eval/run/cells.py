"""The cells that a configuration asks for, each keyed by everything it depends on, and their files on disk.

A cell is one JSON file, named by its key and code and written atomically; so a killed run loses only unfinished cells, and cells filled by other code stay next to it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

from eval.metrics.registry import find_metric
from eval.run.config import Cell, Group, Matrix, MatrixSettings, QuestionResult, System, TaskData, TaskSettings
from eval.run.fingerprints import Fingerprints, bytes_of, cell_code, content_hash
from eval.tasks.catalogue import find_task, load_task, question_row, write_task
from graph.config import parse_settings
from graph.documents.questions import Question
from graph.errors import UserError
from graph.shared.ids import content_id
from graph.shared.jsonl import write_json
from graph.store.index_settings import IndexSettings
from graph.store.manifest import MANIFEST
from graph.types import OpenEncoder

FORMAT = 2
CELLS, INDEXES, CORPORA = "cells", "indexes", "corpora"


def list_cells(settings: MatrixSettings, base: Path, out: Path, open_encoder: OpenEncoder) -> Matrix:
    """Read the tasks below `base` / data and name every system; UserError for invalid data, metrics or settings."""
    systems = systems_of(settings)
    names = [system.name for system in systems]
    if settings.baseline and settings.baseline not in names:
        raise UserError(f"baseline {settings.baseline!r}", f"a system: {', '.join(names)}", "change the value")
    for name in settings.metrics:
        find_metric(name)
    tasks = tuple(
        _task_data(name, task_settings, settings, base, out) for name, task_settings in settings.tasks.items()
    )
    contents, code = Fingerprints(open_encoder), cell_code()
    cells = tuple(_cell(system, task, settings, contents, code) for task in tasks for system in systems)
    return Matrix(systems, tasks, cells)


def systems_of(settings: MatrixSettings) -> tuple[System, ...]:
    """indexes × retrievers × models; a name joins the names of the parts that have one. UserError for a retriever with neither passages nor model."""
    systems = []
    for (index, values), (retriever, retrieve), (model, spec) in product(
        settings.indexes.items(), settings.retrievers.items(), settings.models.items() or [("", "")]
    ):
        if retrieve is None and not spec:
            raise UserError(f"retrievers.{retriever}: no retrieval and no model", "something to measure", "add models")
        index_settings = parse_settings(IndexSettings, values, f"indexes.{index}")
        name = " + ".join(part for part in (retriever, index, model) if part)
        systems.append(System(name, index_settings, retrieve, spec))
    return tuple(systems)


def groups_of(cells: tuple[Cell, ...], out: Path) -> list[Group]:
    """Cells grouped by the index they share, the largest corpus first."""
    by_index: dict[Path, list[Cell]] = {}
    for cell in cells:
        by_index.setdefault(cell.task.index or out / INDEXES / cell.index_key, []).append(cell)
    groups = [Group(folder, tuple(group_cells)) for folder, group_cells in by_index.items()]
    return sorted(groups, key=lambda group: -bytes_of(group.cells[0].task.documents))


def _task_data(name: str, task_settings: TaskSettings, settings: MatrixSettings, base: Path, out: Path) -> TaskData:
    benchmark = find_task(task_settings.task)
    source = base / settings.data / task_settings.source
    loaded = load_task(benchmark, source)
    questions = [question for question in loaded.questions if task_settings.split in (None, question.split)][
        : task_settings.limit
    ]
    if not questions:
        raise UserError(
            f"tasks.{name}: no questions of split {task_settings.split}", "train, dev or test", "change the split"
        )
    if task_settings.index and settings.indexes != {"": {}}:
        found = f"tasks.{name}.index together with `indexes`"
        raise UserError(found, "an existing index, or settings to make one", "drop one of them")
    documents = base / settings.data / task_settings.documents if task_settings.documents else source / "corpus.jsonl"
    if loaded.documents and not task_settings.documents:
        write_task(loaded, out / CORPORA / name)
        documents = out / CORPORA / name / "corpus.jsonl"
    index = base / settings.data / task_settings.index if task_settings.index else None
    if index is not None and not (index / MANIFEST).is_file():
        raise UserError(f"tasks.{name}: {index} is no finished index", "one of `modegraph index`", "check the path")
    if index is None and not documents.exists():
        raise UserError(f"tasks.{name}: {documents} is not there", "documents to index", f"set tasks.{name}.documents")
    shown = sorted(questions, key=lambda question: content_id("shown", str(settings.seed), question.id))[
        : settings.shown_questions
    ]
    return TaskData(
        name=name,
        benchmark=task_settings.task,
        questions=tuple(questions),
        shown=frozenset(question.id for question in shown),
        documents=index or documents,
        documents_hash=content_hash(index / MANIFEST if index else documents),
        index=index,
        metrics=settings.metrics or benchmark.metrics,
    )


def _cell(system: System, task: TaskData, settings: MatrixSettings, contents: Fingerprints, code: str) -> Cell:
    index = contents.index(system.index)
    depends: dict[str, Any] = {
        "format": FORMAT,
        "questions": content_id(*(_canonical_json(question_row(question)) for question in task.questions)),
        "shown": sorted(task.shown),
        "documents": task.documents_hash,
        "index": index,
        "retriever": contents.retriever(system.retrieve),
        "model": contents.model(system.model),
        "helper": contents.model(settings.helper),
        "max_answer_tokens": settings.max_answer_tokens if system.model else None,
        "empty_answers": settings.empty_answers if system.model else None,
        "values": sorted(fill_time_metrics(task.metrics)),
    }
    index_key = content_id(task.documents_hash, _canonical_json(index))
    return Cell(content_id(_canonical_json(depends)), code, index_key, system, task)


def fill_time_metrics(metrics: tuple[str, ...]) -> list[str]:
    """The metrics computed while a cell is filled, because they need the texts of the passages."""
    return [name for name in metrics if find_metric(name).needs in ("context", "grounding")]


def question_texts(task: TaskData) -> dict[str, str]:
    """Question texts by id."""
    return {question.id: question.text for question in task.questions}


def questions_by_id(task: TaskData) -> dict[str, Question]:
    """Questions by id."""
    return {question.id: question for question in task.questions}


def _canonical_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def cell_file(out: Path, cell: Cell) -> Path:
    """The path of a cell."""
    return out / CELLS / f"{cell.key}-{cell.code}.json"


def was_filled(out: Path, cell: Cell) -> bool:
    """Whether the cell was filled by any version of the code."""
    return any((out / CELLS).glob(f"{cell.key}-*.json"))


def write_cell(out: Path, cell: Cell, results: Sequence[QuestionResult], seconds: float) -> None:
    """Write a finished cell, with a head that describes it to readers."""
    file = cell_file(out, cell)
    file.parent.mkdir(parents=True, exist_ok=True)
    retrieve = cell.system.retrieve
    head: dict[str, Any] = {
        "system": cell.system.name,
        "task": cell.task.name,
        "model": cell.system.model,
        "retrieve": retrieve.model_dump() if retrieve is not None else None,
        "index": cell.system.index.model_dump(),
        "code": cell.code,
        "seconds": round(seconds, 3),
    }
    write_json(file, {**head, "results": [asdict(result) for result in results]})


def read_cell(out: Path, cell: Cell) -> tuple[QuestionResult, ...]:
    """The results in a finished cell, in the order of the task's questions; UserError for a file that is not such a cell."""
    file = cell_file(out, cell)
    try:
        rows = json.loads(file.read_text(encoding="utf-8"))["results"]
        results = {row["id"]: _question_result(row) for row in rows}
        return tuple(results[key] for key in question_texts(cell.task))
    except (ValueError, KeyError, TypeError) as problem:
        found = f"{file}: {type(problem).__name__} {problem}"
        raise UserError(found, "a finished cell", "remove the file and run again") from None


def _question_result(row: dict[str, Any]) -> QuestionResult:
    evidence = tuple((title, source, text) for title, source, text in row.pop("evidence"))
    lists = {name: tuple(row.get(name, ())) for name in ("ranked", "layers", "steps")}
    return QuestionResult(**{**row, **lists}, evidence=evidence)
