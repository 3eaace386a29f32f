"""MedQA (Jin et al. 2021), US questions with four options, as in MIRAGE."""

from __future__ import annotations

from eval.tasks.sets.base import HubSet, Item, Row, Task, choice_question
from graph.shared.ids import content_id


def read(row: Row) -> Item:
    """One row of 4_options/phrases_no_exclude_test.jsonl, where `answer_idx` is the letter of the right option; a row without an id gets one."""
    key = row.get("id") or content_id("medqa", row["question"])
    return Item((choice_question(key, row["question"], row["options"], row["answer_idx"]),))


TASK = Task(
    name="medqa",
    title="MedQA, US exam, four options",
    size="1,273 test questions",
    licence="MIT",
    metrics=("choice", "mirage_choice"),
    get="data_clean/questions/US/4_options/phrases_no_exclude_test.jsonl, linked from github.com/jind11/MedQA",
    read=read,
    hub=HubSet("GBaker/MedQA-USMLE-4-options", None, "test", read),
)
