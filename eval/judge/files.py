"""Two files of answers to pairs. One JSON object a line: {"id", "question", "answer"}, as `modegraph eval run` writes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from eval.judge.types import AnswerPair
from eval.shared.same import check_same_questions
from graph.shared.errors import UserError
from graph.shared.jsonl import read_jsonl

FIELDS = ("id", "question", "answer")


@dataclass(frozen=True)
class Answered:
    """One question and one system's answer to it."""

    question: str
    answer: str


def read_answers(file: Path) -> dict[str, Answered]:
    """All answers by question id, in order; UserError naming line and field for a missing, empty or repeated one."""
    found: dict[str, Answered] = {}
    for line, row in read_jsonl(file):
        for field in FIELDS:
            if not isinstance(row.get(field), str) or not row[field].strip():
                problem = f"{file} line {line}: {field!r} is {row.get(field)!r}"
                raise UserError(problem, "a non-empty string", "fix the row, or leave its question out of both files")
        if row["id"] in found:
            raise UserError(
                f"{file} line {line}: id {row['id']!r} appears twice", "one answer a question", "remove one"
            )
        found[row["id"]] = Answered(row["question"], row["answer"])
    if not found:
        raise UserError(f"{file}: no answers", "one JSON object a line", "give a file of answers")
    return found


def pair_up(a: Mapping[str, Answered], b: Mapping[str, Answered]) -> list[AnswerPair]:
    """The pairs in A's order; UserError when the files do not answer the very same questions."""
    check_same_questions(*({key: one.question for key, one in side.items()} for side in (a, b)))
    return [AnswerPair(key, one.question, one.answer, b[key].answer) for key, one in a.items()]
