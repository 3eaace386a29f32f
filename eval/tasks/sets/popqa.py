"""PopQA (Mallen et al. 2023): one-hop questions about rare and common entities, with many accepted answers each."""

from __future__ import annotations

import json

from eval.tasks.sets.base import HubSet, Item, Row, Task
from graph.documents.questions import Question


def read(row: Row) -> Item:
    """One row; `possible_answers` is a JSON list in a string."""
    answers = tuple(json.loads(row["possible_answers"]))
    return Item((Question(id=str(row["id"]), text=row["question"], answers=answers, kind=row.get("prop", "")),))


TASK = Task(
    name="popqa",
    title="PopQA, one hop",
    size="14,267 questions",
    licence="MIT",
    metrics=("em", "f1", "contains"),
    get="the test split of akariasai/PopQA on the hub, saved as .jsonl",
    read=read,
    hub=HubSet("akariasai/PopQA", None, "test", read),
)
