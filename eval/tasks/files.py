"""Tasks as people read them, a loaded task in our own layout on disk, and what a collection is about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval.tasks.sets.types import Loaded, Task
from graph.documents.questions import Question
from graph.shared.jsonl import write_jsonl

if TYPE_CHECKING:
    from graph.index.index import Index

DESCRIBED = 40


def task_lines(tasks: Iterable[Task]) -> Iterator[str]:
    """Each task in five short lines."""
    for task in tasks:
        hub = f"; hub: {task.hub.path}" if task.hub is not None else ""
        yield f"{task.name}: {task.title}"
        yield f"  size     {task.size}"
        yield f"  licence  {task.licence}"
        yield f"  metrics  {', '.join(task.metrics) or 'by a judge'}"
        yield f"  get      {task.get}{hub}"


def task_json(task: Task) -> dict[str, Any]:
    """The same as data."""
    return {
        "name": task.name,
        "title": task.title,
        "size": task.size,
        "licence": task.licence,
        "metrics": list(task.metrics),
        "get": task.get,
        "hub": task.hub.path if task.hub is not None else None,
        "gold": task.gold,
    }


def write_task(loaded: Loaded, out: Path) -> None:
    """questions.jsonl, and corpus.jsonl where the task brings its documents, into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    write_questions(loaded.questions, out / "questions.jsonl")
    if loaded.documents:
        write_jsonl(
            out / "corpus.jsonl", ({"id": d.source, "title": d.title, "text": d.text} for d in loaded.documents)
        )


def write_questions(questions: Sequence[Question], file: Path) -> None:
    """Questions as graph/documents/questions.py reads them."""
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
    """What a collection is about, in at most 40 texts: its widest summaries, or its first passages where it has none."""
    data = index.data
    rows = sorted(range(len(data.summary_ids)), key=lambda row: (-int(data.summary_layer_S[row]), row))[:DESCRIBED]
    if rows:
        return [index.summary(row).text for row in rows]
    return [index.passage(row).text for row in range(min(DESCRIBED, len(data.passage_ids)))]
