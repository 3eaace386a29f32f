"""QuALITY (Pang et al. 2022): questions about long stories and articles, with four options."""

from __future__ import annotations

from eval.tasks.sets.base import HubSet, Item, Row, Task, by_letter, choice_question
from graph.shared.ids import content_id
from graph.types import Document


def read(row: Row) -> Item:
    """One article of QuALITY.v1.0.1.htmlstripped.dev with its questions; `gold_label` counts from 1."""
    source = f"quality-{row['article_id']}"
    questions = []
    for entry in row["questions"]:
        options, number = by_letter(entry["options"]), entry["gold_label"]
        if number < 1:
            raise ValueError(f"gold_label {number}; expected at least 1")
        label = list(options)[number - 1]
        kind = "hard" if entry.get("difficult") else "easy"
        questions.append(choice_question(entry["question_unique_id"], entry["question"], options, label, kind=kind))
    return Item(tuple(questions), (Document(source, row["title"], row["article"]),))


def read_hub(row: Row) -> Item:
    """One row of the hub's data: a question with its article; `answer` counts from 0."""
    options, source = by_letter(row["options"]), f"quality-{content_id(row['article'])}"
    key = content_id(row["article"], row["question"])
    question = choice_question(key, row["question"], options, list(options)[row["answer"]])
    return Item((question,), (Document(source, "", row["article"]),))


TASK = Task(
    name="quality",
    title="QuALITY, long stories, four options",
    size="2,086 dev questions over 115 articles (the labels of the test split are not published)",
    licence="CC BY 4.0",
    metrics=("choice", "mirage_choice"),
    get="QuALITY.v1.0.1.htmlstripped.dev from github.com/nyu-mll/quality",
    read=read,
    hub=HubSet("emozilla/quality", None, "validation", read_hub),
)
