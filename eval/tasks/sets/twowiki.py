"""2WikiMultihopQA (Ho et al. 2020): its files are in HotpotQA's format."""

from eval.tasks.sets.base import Task
from eval.tasks.sets.hotpotqa import read

TASK = Task(
    name="2wiki",
    title="2WikiMultihopQA",
    size="12,576 dev questions",
    licence="Apache-2.0",
    metrics=("em", "hotpot_f1", "recall@5", "all_gold@5"),
    get="dev.json of data_ids_april7.zip, linked from github.com/Alab-NII/2wikimultihop",
    read=read,
    gold="the paragraphs of the supporting facts",
)
