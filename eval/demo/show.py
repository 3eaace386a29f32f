"""The three questions with every model's answer, as a person reads them side by side."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from graph.documents.questions import Question
from serve.show import printable

WIDTH, NAME_WIDTH = 110, 8


@dataclass(frozen=True)
class ModelAnswer:
    """What one model answered: the answer, its reason ("" without), and the titles and files of what it cites, by number."""

    model: str
    answer: str
    reason: str
    citations: Mapping[str, str]


@dataclass(frozen=True)
class Shown:
    """A question, what its writers took for right, and every model's answer."""

    question: str
    gold: str
    answers: tuple[ModelAnswer, ...]

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    def as_text(self) -> str:
        """The question with its gold answer, then a block for each model: answer, reason, sources."""
        lines = textwrap.wrap(printable(f"{self.question} ({self.gold})"), WIDTH)
        for each in self.answers:
            lines += _block(each.model, each.answer or "(no answer)")
            lines += _block("", each.reason) if each.reason else []
            lines += [line for number, source in each.citations.items() for line in _block("", f"[{number}] {source}")]
        return "\n".join(lines)


def side_by_side(
    questions: Sequence[Question], models: Sequence[str], replies: Sequence[Mapping[str, Any]]
) -> tuple[Shown, ...]:
    """`replies` of `modegraph ask --json`, those of each model to all questions in turn, gathered by question."""
    asked = len(questions)
    return tuple(
        Shown(
            question.text,
            question.answers[0],
            tuple(_answer(model, replies[row * asked + column]) for row, model in enumerate(models)),
        )
        for column, question in enumerate(questions)
    )


def _answer(model: str, reply: Mapping[str, Any]) -> ModelAnswer:
    cited = {number: f"{each['title']} · {each['source']}" for number, each in reply["citations"].items()}
    return ModelAnswer(model, printable(reply["answer"]), printable(reply["reason"]), cited)


def _block(name: str, text: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=f"  {name:<{NAME_WIDTH}}", subsequent_indent=" " * (NAME_WIDTH + 2)
    )
