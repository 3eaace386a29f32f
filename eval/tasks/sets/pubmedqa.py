"""PubMedQA (Jin et al. 2019): yes/no/maybe questions about an abstract whose conclusion is withheld."""

from __future__ import annotations

from collections.abc import Sequence

from data_synth.rows import SPLIT_OF
from eval.metrics.answers import CHOICES
from eval.tasks.sets.base import HubSet, Item, Row, Task
from graph.documents.questions import Question
from graph.types import Document


def read(row: Row) -> Item:
    """One item of ori_pqal.json, which is keyed by PubMed id, or an item with "context", "label" and "split"."""
    if "QUESTION" in row:
        return _item(str(row["id"]), row["QUESTION"], row["CONTEXTS"], row["final_decision"], row["LONG_ANSWER"])
    return _item(row["id"], row["question"], row["context"], row["label"], row["reasoning"], row["split"])


def read_hub(row: Row) -> Item:
    """One row of the hub's pqa_labeled."""
    contexts = row["context"]["contexts"]
    return _item(str(row["pubid"]), row["question"], contexts, row["final_decision"], row["long_answer"])


def _item(key: str, text: str, contexts: Sequence[str], label: str, conclusion: str, split: str = "test") -> Item:
    if label not in CHOICES:
        raise ValueError(f"label {label!r} is not yes, no or maybe")
    source = f"pubmed-{key}"
    question = Question(
        id=key,
        text=text,
        answers=(label,),
        gold_sources=(source,),
        kind="boolean",
        split=SPLIT_OF[split],
        reasoning=conclusion,
        options={choice: choice for choice in CHOICES},
    )
    return Item((question,), (Document(source, "", "\n\n".join(contexts)),))


TASK = Task(
    name="pubmedqa",
    title="PubMedQA, labelled by experts",
    size="1,000 questions, of which 500 are the test split (MIRAGE)",
    licence="MIT",
    metrics=("yes_no_maybe", "recall@5"),
    get="data/ori_pqal.json from github.com/pubmedqa/pubmedqa",
    read=read,
    hub=HubSet("qiaojin/PubMedQA", "pqa_labeled", "train", read_hub),
    gold="the abstract",
)
