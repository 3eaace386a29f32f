"""The project's own questions on the invented documents in examples/."""

from eval.tasks.sets.base import Task

TASK = Task(
    name="examples",
    title="the Halmaren Isles",
    size="237 questions (59 test) over 100 documents",
    licence="Apache-2.0",
    metrics=("em", "f1", "answer_in_context", "recall@5", "all_gold@5"),
    get="examples/ from a clone of the repository",
    gold="the documents that contain the evidence",
)
