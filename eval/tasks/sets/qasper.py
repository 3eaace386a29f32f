"""QASPER (Dasigi et al. 2021): questions about whole papers; free, extractive, yes/no and unanswerable answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from eval.tasks.sets.base import HubSet, Item, Row, Task
from graph.answer.prompt import NOT_FOUND
from graph.documents.questions import Question
from graph.types import Document


def read(row: Row) -> Item:
    """One paper of qasper-*-v0.3.json, which is keyed by paper, or of the hub's data, where lists of objects are objects of lists."""
    source = str(row["id"])
    sections = list(_sections(row["full_text"]))
    body = "\n\n".join(f"## {name}\n\n{text}" if name else text for name, text in sections if text)
    document = Document(source, row["title"], f"{row['abstract']}\n\n{body}")
    questions = tuple(
        Question(id=key, text=text, answers=answers, gold_sources=(source,), kind="paper")
        for key, text, answers in _questions(row["qas"])
        if answers
    )
    return Item(questions, (document,))


def _sections(full_text: Any) -> Iterator[tuple[str, str]]:
    if isinstance(full_text, dict):
        pairs = zip(full_text["section_name"], full_text["paragraphs"], strict=True)
    else:
        pairs = ((section["section_name"], section["paragraphs"]) for section in full_text)  # type: ignore[assignment]
    for name, paragraphs in pairs:
        yield name or "", "\n\n".join(paragraphs)


def _questions(qas: Any) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    if isinstance(qas, dict):
        for key, text, answers in zip(qas["question_id"], qas["question"], qas["answers"], strict=True):
            yield key, text, _texts(answers["answer"])
    else:
        for qa in qas:
            yield qa["question_id"], qa["question"], _texts([annotation["answer"] for annotation in qa["answers"]])


def _texts(answers: list[Any]) -> tuple[str, ...]:
    """Each annotator's answer as text, without duplicates: NOT_FOUND if marked as unanswerable, else the free text, else the spans, else yes or no."""
    texts = [
        NOT_FOUND
        if answer["unanswerable"]
        else answer["free_form_answer"]
        or ", ".join(answer["extractive_spans"])
        or ("yes" if answer["yes_no"] else "no")
        for answer in answers
    ]
    return tuple(dict.fromkeys(texts))


TASK = Task(
    name="qasper",
    title="QASPER, questions about papers",
    size="1,451 test questions over 416 papers (5,049 questions in all splits)",
    licence="CC BY 4.0",
    metrics=("f1", "rouge1", "rouge2", "rougeL", "bleu", "meteor"),
    get="qasper-test-v0.3.json of qasper-test-and-evaluator-v0.3.tgz, linked from allenai.org/data/qasper",
    read=read,
    hub=HubSet("allenai/qasper", None, "test", read),
    gold="the paper",
)
