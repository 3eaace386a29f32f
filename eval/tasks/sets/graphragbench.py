"""GraphRAG-Bench (Xiang et al. 2025): facts, reasoning, summaries and creative tasks over long texts."""

from __future__ import annotations

from eval.tasks.sets.base import HubSet, Item, Row, Task
from graph.documents.questions import Question
from graph.types import Document


def read(row: Row) -> Item:
    """One row of *_questions.json (a question) or of the corpus (a document: corpus_name, context)."""
    if "corpus_name" in row:
        return Item((), (Document(row["corpus_name"], row["corpus_name"], row["context"]),))
    return Item((Question(id=row["id"], text=row["question"], answers=(row["answer"],), kind=row["question_type"]),))


TASK = Task(
    name="graphrag-bench",
    title="GraphRAG-Bench, medical or novel",
    size="2,062 medical and 2,010 novel questions",
    licence="MIT according to the ToPG paper; the repository states no licence",
    metrics=("rougeL", "f1", "claim_recall_by_encoder"),
    get="Datas/Questions/medical_questions.json and Datas/Corpus/medical.json from github.com/GraphRAG-Bench/GraphRAG-Benchmark",
    read=read,
    hub=HubSet("GraphRAG-Bench/GraphRAG-Bench", "medical", "train", read),
)
