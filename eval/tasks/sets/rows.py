"""What the readers of several public sets share: options told with a question, paragraphs as documents, our own layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eval.tasks.sets.types import Item, Row
from graph.documents.questions import Question, parse_question
from graph.shared.ids import content_id
from graph.shared.types import Document

SPLITS = {"train": "train", "validation": "dev", "dev": "dev", "test": "test"}


def choice_question(
    key: str,
    stem: str,
    options: Mapping[str, str],
    label: str,
    split: str = "test",
    kind: str = "choice",
    reasoning: str = "",
) -> Question:
    """A multiple-choice question that tells its options, "(A) … (B) …"; KeyError for a label that is no option's."""
    told = " ".join(f"({letter}) {option}" for letter, option in options.items())
    return Question(
        id=key,
        text=f"{stem.strip()} {told}",
        answers=(options[label],),
        kind=kind,
        split=SPLITS[split],
        reasoning=reasoning,
        options=dict(options),
    )


def lettered(options: Sequence[str]) -> dict[str, str]:
    """Options by letters from A.

    >>> lettered(["mouse", "hole"])
    {'A': 'mouse', 'B': 'hole'}
    """
    return {chr(ord("A") + place): option for place, option in enumerate(options)}


def paragraph(title: str, text: str) -> Document:
    """A paragraph as a document: its title and the hash of its text name it, because titles repeat."""
    return Document(f"{title}#{content_id(title, text)[:8]}", title, text)


def own_layout(row: Row) -> Item:
    """A row of our own form (graph/documents/questions.py)."""
    return Item((parse_question(row, "this row"),))
