"""What the demo says at its end: counts over the test questions, and three of them with every model's answer side by side."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from graph.documents.questions import Question
from serve.show import printable

WIDTH, NAME_WIDTH = 110, 8
COUNTED = {
    "exactly a gold answer": "exact match",
    "a gold answer in it": "contains a gold answer",
    "cites a passage it was shown": "cites a passage that exists",
}
"""What is counted, by the name of its measure in a comparison."""
UNTUNED, TUNED = "untuned", "ms"
ORDER = (UNTUNED, "sft", "dpo", TUNED)
"""How the models of the demo are called in its comparison."""


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


def counted(report: Mapping[str, Any]) -> str:
    """How many of the test questions each model answers how, by a comparison's report.json, and what that shows.

    >>> measures = {name: {"untuned": 0.25, "ms": 0.5} for name in COUNTED.values()}
    >>> report = {"questions": 8, "measures": measures, "policies": [{"name": "ms"}, {"name": "untuned"}]}
    >>> print(counted(report))
    Answers to 8 questions of the test split, drawn by the seed:
                                  untuned    ms
    exactly a gold answer               2     4
    a gold answer in it                 2     4
    cites a passage it was shown        2     4
    A gold answer is in 2 more of them after MS than before. So few questions and so short a run decide nothing.
    """
    names = sorted((policy["name"] for policy in report["policies"]), key=ORDER.index)
    number, measures = report["questions"], report["measures"]
    counts = {row: {name: round(measures[key][name] * number) for name in names} for row, key in COUNTED.items()}
    head = max(map(len, COUNTED))
    widths = {name: max(len(name), 4) for name in names}
    lines = [f"Answers to {number} questions of the test split, drawn by the seed:"]
    lines += [f"{'':<{head}}" + "".join(f"  {name:>{widths[name]}}" for name in names)]
    lines += [
        f"{row:<{head}}" + "".join(f"  {each[name]:>{widths[name]}}" for name in names) for row, each in counts.items()
    ]
    held = counts["a gold answer in it"]
    gained = held[TUNED] - held[UNTUNED]
    what = (
        f"{abs(gained)} {'more' if gained > 0 else 'fewer'} of them after MS than"
        if gained
        else "as many of them after MS as"
    )
    lines.append(f"A gold answer is in {what} before. So few questions and so short a run decide nothing.")
    return "\n".join(lines)
