"""A task's data to questions and documents: from files as published or in our own layout, or from the hub when asked.

A source is a file (.jsonl, .json) or a folder. In a folder, questions.jsonl (and corpus.jsonl) are read in our own layout; otherwise
every .json and .jsonl file in it is read row by row.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from eval.tasks.sets.types import Item, Loaded, Read, Row, Task
from graph.documents.questions import Question, read_questions
from graph.shared.errors import UserError
from graph.shared.jsonl import read_jsonl
from graph.shared.types import Document

HUB = "hub"
MISSHAPEN = (KeyError, TypeError, IndexError, AttributeError, ValueError)


def load_task(task: Task, source: Path) -> Loaded:
    """Everything in `source`; UserError for a missing source (saying how to get it) and for a row of another shape."""
    if not source.exists():
        hub = f", or --source {HUB}" if task.hub is not None else ""
        raise UserError(f"{task.name}: {source} is not there", "its data", f"get {task.get}{hub}")
    if (source / "questions.jsonl").is_file():
        return Loaded(tuple(read_questions(source / "questions.jsonl")), ())
    files = (
        sorted(file for file in source.iterdir() if file.suffix in (".json", ".jsonl")) if source.is_dir() else [source]
    )
    return _joined(task, (item for file in files for item in _items(task, file)), str(source))


def load_from_hub(task: Task) -> Loaded:
    """The task's split on the hub, by `datasets`; UserError where it has none, or the hub does not give it."""
    if task.hub is None:
        raise UserError(f"{task.name}: not on the hub in a form that is read here", "a file", f"get {task.get}")
    try:
        from datasets import load_dataset

        rows = load_dataset(task.hub.path, task.hub.name, split=task.hub.split)
    except ImportError:
        raise UserError("datasets is not installed", "the extra", "pip install 'modegraph[train]'") from None
    except (OSError, ValueError, RuntimeError) as problem:
        reason = (str(problem).splitlines() or [type(problem).__name__])[0]
        raise UserError(
            f"{task.name}: the hub did not give {task.hub.path} ({reason})", "its data", f"get {task.get}"
        ) from None
    return _joined(
        task, (_read(task.hub.read, row, f"{task.hub.path} row {n}") for n, row in enumerate(rows)), task.hub.path
    )


def _items(task: Task, file: Path) -> Iterator[Item]:
    for where, row in _rows(file):
        yield _read(task.read, row, where)


def _read(read: Read, row: Row, where: str) -> Item:
    try:
        return read(row)
    except UserError as problem:
        raise UserError(f"{where}, {problem}", "", "") from None
    except MISSHAPEN as problem:
        found = f"{where}: {type(problem).__name__} {problem}"
        raise UserError(found, "a row as published", "name the task that the file is of, or fix the row") from None


def _rows(file: Path) -> Iterator[tuple[str, Row]]:
    """(where, row) of JSON lines, of a JSON list, or of a JSON object by id, whose rows get their key as "id"."""
    if file.suffix != ".json":
        yield from ((f"{file} line {line}", row) for line, row in read_jsonl(file))
        return
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as problem:
        raise UserError(f"{file}: not valid JSON ({problem})", "the file as published", "fetch it again") from None
    if isinstance(values, dict) and all(isinstance(row, dict) for row in values.values()):
        yield from ((f"{file} key {key}", {"id": key, **row}) for key, row in values.items())
    else:
        rows = values if isinstance(values, list) else [values]
        yield from ((f"{file} row {number}", row) for number, row in enumerate(rows))


def _joined(task: Task, items: Iterable[Item], where: str) -> Loaded:
    questions: dict[str, Question] = {}
    documents: dict[str, Document] = {}
    for item in items:
        for question in item.questions:
            if questions.setdefault(question.id, question) != question:
                raise UserError(f"{where}: id {question.id!r} appears twice", "unique ids", "remove one")
        documents.update((document.source, document) for document in item.documents)
    if not questions:
        raise UserError(f"{where}: no question of {task.name}", "its data", f"get {task.get}")
    return Loaded(tuple(questions.values()), tuple(documents.values()))
