"""MedMCQA (Pal et al. 2022): four-option questions from Indian medical entrance exams; the dev split, as in MIRAGE."""

from __future__ import annotations

from eval.tasks.sets.base import HubSet, Item, Row, Task, by_letter, choice_question

OPTIONS = ("opa", "opb", "opc", "opd")


def read(row: Row) -> Item:
    """One row of dev.json, whose `cop` counts from 1, or a row with "options" by letter."""
    if "options" in row:
        options, reasoning = row["options"], row.get("reasoning", "")
        return Item(
            (choice_question(row["id"], row["question"], options, row["label"], row["split"], reasoning=reasoning),)
        )
    return _item(row, row["cop"] - 1)


def read_hub(row: Row) -> Item:
    """One row of the hub's data, whose `cop` counts from 0."""
    return _item(row, row["cop"])


def _item(row: Row, index: int) -> Item:
    options = by_letter([row[key] for key in OPTIONS])
    if not 0 <= index < len(options):
        raise ValueError(f"cop {row['cop']} is none of the {len(options)} options")
    label, reasoning = list(options)[index], row.get("exp") or ""
    return Item((choice_question(row["id"], row["question"], options, label, "dev", reasoning=reasoning),))


TASK = Task(
    name="medmcqa",
    title="MedMCQA, four options",
    size="4,183 dev questions (as in MIRAGE; the labels of the test split are not published)",
    licence="MIT",
    metrics=("choice", "mirage_choice"),
    get="rawdata/medmcqa/data/dev.json from github.com/Teddy-XiongGZ/MIRAGE",
    read=read,
    hub=HubSet("openlifescienceai/medmcqa", None, "validation", read_hub),
)
