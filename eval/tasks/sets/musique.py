"""MuSiQue (Trivedi et al. 2022): questions of 2 to 4 hops, each with 20 paragraphs, some of which support it."""

from __future__ import annotations

from eval.tasks.sets.base import HubSet, Item, Row, Task, paragraph
from graph.documents.questions import Question


def read(row: Row) -> Item:
    """One row of musique_ans_v1.0_dev.jsonl; aliases are accepted answers."""
    documents = [
        paragraph(row_paragraph["title"], row_paragraph["paragraph_text"]) for row_paragraph in row["paragraphs"]
    ]
    pairs = zip(documents, row["paragraphs"], strict=True)
    gold = tuple(dict.fromkeys(document.source for document, row_paragraph in pairs if row_paragraph["is_supporting"]))
    question = Question(
        id=row["id"],
        text=row["question"],
        answers=(row["answer"], *row["answer_aliases"]),
        gold_sources=gold,
        kind=row["id"].partition("__")[0],
        hops=len(row["question_decomposition"]),
    )
    return Item((question,), tuple(documents))


TASK = Task(
    name="musique",
    title="MuSiQue, 2 to 4 hops",
    size="2,417 answerable dev questions",
    licence="CC BY 4.0",
    metrics=("em", "f1", "recall@5", "all_gold@5"),
    get="musique_ans_v1.0_dev.jsonl, which the script download_data.sh from github.com/StonyBrookNLP/musique downloads",
    read=read,
    hub=HubSet("dgslibisey/MuSiQue", None, "validation", read),
    gold="the supporting paragraphs",
)
