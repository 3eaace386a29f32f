"""HotpotQA (Yang et al. 2018), distractor setting: two hops, ten paragraphs per question. 2WikiMultihopQA has the same format."""

from __future__ import annotations

from eval.tasks.sets.base import HubSet, Item, Row, Task, paragraph
from graph.documents.questions import Question


def read(row: Row) -> Item:
    """The item in a row of hotpot_dev_distractor_v1.json, or of the hub's data, where an object of two lists replaces each list of pairs."""
    context, facts = row["context"], row["supporting_facts"]
    pairs = zip(context["title"], context["sentences"], strict=True) if isinstance(context, dict) else context
    documents = {title: paragraph(title, " ".join(s.strip() for s in sentences)) for title, sentences in pairs}
    titles = facts["title"] if isinstance(facts, dict) else [title for title, _ in facts]
    gold = tuple(documents[title].source for title in dict.fromkeys(titles))
    question = Question(
        id=row["_id"] if "_id" in row else row["id"],
        text=row["question"],
        answers=(row["answer"],),
        gold_sources=gold,
        kind=row.get("type", ""),
        hops=len(gold),
    )
    return Item((question,), tuple(documents.values()))


TASK = Task(
    name="hotpotqa",
    title="HotpotQA, distractor setting",
    size="7,405 dev questions",
    licence="CC BY-SA 4.0",
    metrics=("em", "hotpot_f1", "recall@5", "all_gold@5"),
    get="hotpot_dev_distractor_v1.json from hotpotqa.github.io",
    read=read,
    hub=HubSet("hotpotqa/hotpot_qa", "distractor", "validation", read),
    gold="the paragraphs of the supporting facts",
)
