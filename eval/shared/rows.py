"""Held-out rows of preference data, as `modegraph synth preferences` writes them: what a comparison asks and scores.

The first stop of `modegraph compare`: rows -> answers and log-probabilities -> measures -> report.
"""

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from graph.shared.errors import UserError
from graph.shared.types import Message
from train.run.data import read_preferences


@dataclass(frozen=True)
class HeldOutRow:
    """One prompt over `passages` numbered excerpts, its gold answers, and the pair (y_w, y_l) to score.

    `hard_negative` is "" for the paper's pair (reasoning with answer, against the answer alone), otherwise it names the
    length-matched rejected side.
    """

    id: str
    prompt: tuple[Message, ...]
    chosen: str
    rejected: str
    question_id: str
    question: str
    answers: tuple[str, ...]
    kind: str
    context_size: int
    passages: int
    hard_negative: str


def read_rows(folder: Path, split: str) -> list[HeldOutRow]:
    """All rows of `folder`/`split`.jsonl; UserError when the file is missing, empty or malformed."""
    file = folder / f"{split}.jsonl"
    if not file.is_file() and not folder.is_file():
        found = ", ".join(sorted(path.name for path in folder.glob("*.jsonl"))) or "no .jsonl file there"
        remedy = "make it with `modegraph synth preferences`, or choose another --split"
        raise UserError(f"{file}: no such file (found: {found})", "preference data", remedy)
    return [
        HeldOutRow(
            id=row.id,
            prompt=row.prompt,
            chosen=row.chosen,
            rejected=row.rejected,
            question_id=row.question_id,
            question=row.question,
            answers=row.answers,
            kind=row.kind,
            context_size=row.context_size,
            passages=len(row.context_ids),
            hard_negative=row.hard_negative,
        )
        for row in read_preferences(file)
    ]


def select_rows(
    rows: Sequence[HeldOutRow], context_sizes: Collection[int], limit: int | None, seed: int
) -> list[HeldOutRow]:
    """The rows of these context sizes (none: all sizes) of at most `limit` questions, drawn by `seed`, in file order."""
    sized = [row for row in rows if not context_sizes or row.context_size in context_sizes]
    if not sized:
        found = "".join(f" --context-size {size}" for size in context_sizes).strip()
        sizes = ", ".join(str(size) for size in sorted({row.context_size for row in rows}))
        raise UserError(f"{found}: no such rows", f"one of {sizes}", "change the value")
    questions = list(dict.fromkeys(row.question_id for row in sized))
    if limit is not None and limit < len(questions):
        questions = random.Random(seed).sample(questions, limit)
    kept = set(questions)
    return [row for row in sized if row.question_id in kept]


def unique_prompts(rows: Sequence[HeldOutRow]) -> list[HeldOutRow]:
    """One row for each prompt: pairs that differ only in their rejected side are asked once."""
    first: dict[tuple[Message, ...], HeldOutRow] = {}
    for row in rows:
        first.setdefault(row.prompt, row)
    return list(first.values())
