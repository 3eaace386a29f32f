"""MultiHop-RAG (Tang & Yang 2024): questions that span several news articles; the corpus is a separate file."""

from __future__ import annotations

from eval.tasks.sets.base import HubSet, Item, Row, Task
from graph.documents.questions import Question, Quote
from graph.shared.ids import content_id
from graph.types import Document


def read(row: Row) -> Item:
    """One row of MultiHopRAG.json (a question) or of corpus.json (an article); an article's source is its URL."""
    if "body" in row:
        return Item((), (Document(row["url"], row["title"], row["body"]),))
    evidence = tuple(Quote(item["url"], item["fact"]) for item in row["evidence_list"])
    question = Question(
        id=content_id("multihop-rag", row["query"]),
        text=row["query"],
        answers=(row["answer"],),
        gold_sources=tuple(dict.fromkeys(quote.source for quote in evidence)),
        evidence=evidence,
        kind=row["question_type"],
        hops=len(evidence) or None,
    )
    return Item((question,))


TASK = Task(
    name="multihop-rag",
    title="MultiHop-RAG, news",
    size="2,556 questions about 609 articles",
    licence="ODC-BY 1.0",
    metrics=("contains", "f1", "recall@5", "all_gold@5"),
    get="dataset/MultiHopRAG.json and dataset/corpus.json from github.com/yixuantt/MultiHop-RAG, in one folder",
    read=read,
    hub=HubSet("yixuantt/MultiHopRAG", "MultiHopRAG", "train", read),
    gold="the articles of the evidence",
)
