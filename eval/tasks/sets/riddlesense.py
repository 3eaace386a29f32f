"""RiddleSense (Lin et al. 2021): riddles with five options."""

from __future__ import annotations

from eval.tasks.sets.base import HubSet, Item, Row, Task, choice_question


def read(row: Row) -> Item:
    """One riddle from a row as published (stem and choices nested), as on the hub (`choices` is an object of lists), or with `options` by letter."""
    if "options" in row:
        return Item((choice_question(row["id"], row["question"], row["options"], row["label"], row["split"]),))
    if isinstance(row["question"], str):
        options = dict(zip(row["choices"]["label"], row["choices"]["text"], strict=True))
        return Item((choice_question(row["question"], row["question"], options, row["answerKey"]),))
    options = {choice["label"]: choice["text"] for choice in row["question"]["choices"]}
    return Item((choice_question(row["id"], row["question"]["stem"], options, row["answerKey"]),))


TASK = Task(
    name="riddlesense",
    title="RiddleSense, five options",
    size="1,021 dev riddles (3,510 train; the labels of the test split are not published)",
    licence="MIT (stated in its repository)",
    metrics=("choice",),
    get="rs_dev.jsonl from github.com/INK-USC/RiddleSense (branch `site`)",
    read=read,
    hub=HubSet("INK-USC/riddle_sense", None, "validation", read),
)
