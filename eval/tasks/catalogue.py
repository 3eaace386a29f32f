"""The benchmarks by name; their questions and documents, read from published files, modegraph's own layout or the hub, and written in modegraph's layout.

A source is a folder or a file: JSON or JSON lines if it ends in .json, else JSON lines. A folder with questions.jsonl has modegraph's layout: only this
file is read here, and corpus.jsonl is indexed as it is. In any other folder, every file with one of DATA_ENDINGS is read row by row."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_synth.relevance.relevance_form import CORPUS
from data_synth.rows import MALFORMED
from eval.tasks.sets import (
    abstract,
    examples,
    graphragbench,
    hotpotqa,
    medmcqa,
    medqa,
    multihoprag,
    musique,
    popqa,
    pubmedqa,
    qasper,
    quality,
    riddlesense,
    twowiki,
)
from eval.tasks.sets.base import Item, LoadedTask, Read, Row, Task, read_native
from graph.documents.questions import Question, read_questions
from graph.errors import UserError, did_you_mean, first_line
from graph.shared.jsonl import read_jsonl, write_jsonl
from graph.types import Document

if TYPE_CHECKING:
    from graph.index.index import Index


_MODULES = (
    qasper,
    quality,
    riddlesense,
    pubmedqa,
    medqa,
    medmcqa,
    musique,
    hotpotqa,
    twowiki,
    popqa,
    multihoprag,
    graphragbench,
    abstract,
    examples,
)
TASKS: dict[str, Task] = {module.TASK.name: module.TASK for module in _MODULES}


def find_task(name: str) -> Task:
    """The task called `name`; UserError, with the most similar name if there is one, for an unknown task."""
    if name not in TASKS:
        raise UserError(f"unknown task {name!r}", did_you_mean(name, TASKS), f"known tasks: {', '.join(TASKS)}")
    return TASKS[name]


HUB = "hub"
DATA_ENDINGS = (".json", ".jsonl", ".dev")
"""The extensions of data files in a folder; QuALITY's are JSON lines that end in .dev."""


def load_task(task: Task, source: Path) -> LoadedTask:
    """The questions in `source`, with the documents that its rows contain.

    UserError for a missing source or one without questions (saying how to get the data), a malformed row, or two different questions with the same id.
    """
    if not source.exists():
        hub = f", or use --source {HUB}" if task.hub is not None else ""
        raise UserError(f"{task.name}: {source} does not exist", "the task's data", f"get {task.get}{hub}")
    if (source / "questions.jsonl").is_file():
        return LoadedTask(tuple(read_questions(source / "questions.jsonl")), ())
    files = sorted(file for file in source.iterdir() if file.suffix in DATA_ENDINGS) if source.is_dir() else [source]
    items = (_read_row(task.read, row, where) for file in files for where, row in _file_rows(file))
    return _join_items(task, items, str(source))


def load_from_hub(task: Task) -> LoadedTask:
    """The task's split on the hub, read by `datasets`; UserError if the task is not there, `datasets` is not installed, or loading fails."""
    if task.hub is None:
        raise UserError(f"{task.name}: not on the hub in a supported form", "a file", f"get {task.get}")
    try:
        from datasets import load_dataset

        rows = load_dataset(task.hub.path, task.hub.name, split=task.hub.split)
    except ImportError:
        raise UserError("datasets is not installed", "the extra `train`", "pip install 'modegraph[train]'") from None
    except (OSError, ValueError, RuntimeError) as problem:
        found = f"{task.name}: {task.hub.path} could not be loaded from the hub ({first_line(problem)})"
        raise UserError(found, "the task's data", f"get {task.get}") from None
    items = (_read_row(task.hub.read, row, f"{task.hub.path} row {n}") for n, row in enumerate(rows))
    return _join_items(task, items, task.hub.path)


def _read_row(read: Read | None, row: Row, where: str) -> Item:
    try:
        if read is None or "answers" in row:  # rows as published have no such key
            return read_native(row, where)
        return read(row)
    except MALFORMED as problem:
        found = f"{where}: {type(problem).__name__} {problem}"
        raise UserError(found, "a row as published", "name the task that the file belongs to, or fix the row") from None


def _file_rows(file: Path) -> Iterator[tuple[str, Row]]:
    """(where, row) for each row of JSON lines, a JSON list, a JSON object of rows by id (each gets its key as "id"), or a single JSON object."""
    lines = ((f"{file} line {line}", row) for line, row in read_jsonl(file))
    if file.suffix != ".json":
        yield from lines
        return
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as problem:
        try:
            yield from list(lines)  # MIRAGE's dev.json of MedMCQA is JSON lines despite its name.
        except UserError:
            found = f"{file}: not valid JSON ({problem})"
            raise UserError(found, "the file as published", "download it again") from None
        return
    if isinstance(values, dict) and all(isinstance(row, dict) for row in values.values()):
        yield from ((f"{file} key {key}", {"id": key, **row}) for key, row in values.items())
    else:
        rows = values if isinstance(values, list) else [values]
        yield from ((f"{file} row {number}", row) for number, row in enumerate(rows))


def _join_items(task: Task, items: Iterable[Item], where: str) -> LoadedTask:
    questions: dict[str, Question] = {}
    documents: dict[str, Document] = {}
    for item in items:
        for question in item.questions:
            if questions.setdefault(question.id, question) != question:
                found = f"{where}: two different questions have the id {question.id!r}"
                raise UserError(found, "unique ids", "remove one")
        documents.update((document.source, document) for document in item.documents)
    if not questions:
        raise UserError(f"{where}: no question of {task.name}", "the task's data", f"get {task.get}")
    return LoadedTask(tuple(questions.values()), tuple(documents.values()))


MAX_TEXTS = 40


def task_lines(tasks: Iterable[Task]) -> Iterator[str]:
    """Each task in five short lines."""
    for task in tasks:
        hub = f"; hub: {task.hub.path}" if task.hub is not None else ""
        yield f"{task.name}: {task.title}"
        yield f"  size     {task.size}"
        yield f"  licence  {task.licence}"
        yield f"  metrics  {', '.join(task.metrics) or 'none: compare answers with `eval judge`'}"
        yield f"  get      {task.get}{hub}"


def task_json(task: Task) -> dict[str, Any]:
    """A task as JSON data."""
    values = {name: value for name, value in vars(task).items() if name != "read"}
    return values | {"hub": task.hub.path if task.hub is not None else None}


def write_task(loaded: LoadedTask, out: Path) -> None:
    """Write questions.jsonl, and corpus.jsonl if the task comes with documents, into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    write_questions(loaded.questions, out / "questions.jsonl")
    if loaded.documents:
        write_jsonl(out / CORPUS, ({"id": d.source, "title": d.title, "text": d.text} for d in loaded.documents))


def write_questions(questions: Sequence[Question], file: Path) -> None:
    """Write questions in the form that graph/documents/questions.py reads."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_jsonl(file, (question_row(question) for question in questions))


def question_row(question: Question) -> dict[str, Any]:
    """One question as a row."""
    return {
        "id": question.id,
        "question": question.text,
        "answers": list(question.answers),
        "gold_ids": list(question.gold_sources),
        "evidence": [{"id": quote.source, "quote": quote.text} for quote in question.evidence],
        "type": question.kind,
        "hops": question.hops,
        "split": question.split,
        "reasoning": question.reasoning,
        "options": dict(question.options) if question.options is not None else None,
    }


def describe_collection(index: Index) -> list[str]:
    """A description of a collection in at most MAX_TEXTS texts: its summaries, highest layers first, or its first passages if it has no summaries."""
    data = index.data
    rows = sorted(range(len(data.summary_ids)), key=lambda row: (-int(data.summary_layer_S[row]), row))[:MAX_TEXTS]
    if rows:
        return [index.summary(row).text for row in rows]
    return [index.passage(row).text for row in range(min(MAX_TEXTS, len(data.passage_ids)))]
