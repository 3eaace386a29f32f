"""QASPER (Dasigi et al. 2021): questions about whole papers, some unanswerable; the other answers are free-form, extractive or yes/no."""

from __future__ import annotations

from typing import Any

from eval.tasks.sets.base import HubSet, Item, Row, Task
from graph.answer.prompt import NOT_FOUND
from graph.documents.questions import Question
from graph.types import Document


def read(row: Row) -> Item:
    """One paper of qasper-*-v0.3.json, which is keyed by paper, or of the hub's data, in which a list of objects is stored as one object of lists."""
    source = str(row["id"])
    sections = [(each["section_name"], "\n\n".join(each["paragraphs"])) for each in _objects(row["full_text"])]
    body = "\n\n".join(f"## {name}\n\n{text}" if name else text for name, text in sections if text)
    document = Document(source, row["title"], f"{row['abstract']}\n\n{body}")
    questions = []
    for qa in _objects(row["qas"]):
        if answers := _texts([annotation["answer"] for annotation in _objects(qa["answers"])]):
            questions.append(Question(qa["question_id"], qa["question"], answers, gold_sources=(source,), kind="paper"))
    return Item(tuple(questions), (document,))


def _objects(value: Any) -> list[Any]:
    """A list of objects, which may be given as an object of lists."""
    if not isinstance(value, dict):
        return list(value)
    return [dict(zip(value, each, strict=True)) for each in zip(*value.values(), strict=True)]


def _texts(answers: list[Any]) -> tuple[str, ...]:
    """Each annotator's answer as text, without duplicates: NOT_FOUND if marked as unanswerable, else the free text, else the spans, else yes or no.

    An annotation without any of these is left out.
    """
    texts = [
        NOT_FOUND
        if answer["unanswerable"]
        else answer["free_form_answer"]
        or ", ".join(answer["extractive_spans"])
        or {True: "yes", False: "no", None: ""}[answer["yes_no"]]
        for answer in answers
    ]
    return tuple(dict.fromkeys(filter(None, texts)))


TASK = Task(
    name="qasper",
    title="QASPER, questions about papers",
    size="1,451 test questions about 416 papers (5,049 questions in all splits)",
    licence="CC BY 4.0",
    metrics=("f1", "rouge1", "rouge2", "rougeL", "bleu", "meteor"),
    get="qasper-test-v0.3.json from qasper-test-and-evaluator-v0.3.tgz, linked from allenai.org/data/qasper",
    read=read,
    hub=HubSet("allenai/qasper", None, "test", read),
    gold="the paper",
)
