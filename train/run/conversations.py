"""What supervised fine-tuning learns from: conversations of whatever form, the last answer of each, and what that is measured against.

Read are our own reading rows and preference pairs (the chosen side), TRL's prompt and completion, messages (OpenAI), conversations (ShareGPT) and
instruction, input, output (Alpaca), one JSON object a line in train.jsonl and, where there is one, dev.jsonl.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graph.shared.errors import UserError
from graph.shared.jsonl import read_jsonl
from graph.shared.types import Message

ROLES = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "system": "system"}
FORMS = "prompt and completion, prompt and chosen, messages, conversations, or instruction and output"


@dataclass(frozen=True)
class Conversation:
    """A chat that ends with a user's turn, the completion to learn, and what an answer to it is measured against.

    `answers` are the accepted short answers (none: refusing is right); `gold` numbers the passages that may be cited, of `context`, their ids.
    """

    prompt: tuple[Message, ...]
    completion: str
    answers: tuple[str, ...] = ()
    gold: tuple[int, ...] = ()
    context: tuple[str, ...] = ()


def read_conversations(file: Path) -> list[Conversation]:
    """All distinct conversations of a file in order; UserError with the line number for the first that cannot be learned, or for none."""
    rows: dict[Conversation, None] = {}
    for line, values in read_jsonl(file):
        where = f"{file} line {line}"
        try:
            row = conversation_of(values)
        except (KeyError, TypeError, IndexError, AttributeError, ValueError) as problem:
            said = f"no {problem}" if isinstance(problem, KeyError) else str(problem)
            found = f"{where}: not a conversation ({said}); its keys are {', '.join(values)}"
            raise UserError(found, FORMS, "fix the row, or see docs/guide.md") from None
        if not row.prompt or row.prompt[-1].role != "user":
            raise UserError(
                f"{where}: the prompt does not end with a user's turn", "a question to answer", "fix the row"
            )
        if not row.completion.strip():
            raise UserError(f"{where}: the completion is {row.completion!r}", "a non-empty text", "remove the row")
        rows[row] = None
    if not rows:
        raise UserError(f"{file}: no rows", f"one JSON object a line: {FORMS}", "write it with `modegraph synth`")
    return list(rows)


def conversation_of(row: Mapping[str, Any]) -> Conversation:
    """One row of any of the forms; KeyError, TypeError or ValueError for a row of none."""
    if "messages" in row or "conversations" in row:
        return _of_turns(_turns(row.get("messages") or row["conversations"]))
    if "instruction" in row:
        asked = "\n\n".join(part for part in (row["instruction"], row.get("input") or "") if part)
        system = (Message("system", row["system"]),) if row.get("system") else ()
        return _measured(Conversation((*system, Message("user", asked)), str(row["output"])), row)
    prompt = row["prompt"]
    turns = (Message("user", prompt),) if isinstance(prompt, str) else _turns(prompt)
    written = row["completion"] if "completion" in row else row["chosen"]
    return _measured(Conversation(turns, written if isinstance(written, str) else written[-1]["content"]), row)


def _of_turns(turns: Sequence[Message]) -> Conversation:
    if turns[-1].role != "assistant":
        raise ValueError(f"the last turn is the {turns[-1].role}'s, not the assistant's")
    return _measured(Conversation(tuple(turns[:-1]), turns[-1].content), {})


def _turns(turns: Any) -> tuple[Message, ...]:
    """OpenAI's role and content, or ShareGPT's from and value."""
    made = []
    for turn in turns:
        role, content = (turn["role"], turn["content"]) if "role" in turn else (turn["from"], turn["value"])
        if role not in ROLES or not isinstance(content, str):
            raise ValueError(f"a turn of {role!r} with {content!r:.40}")
        made.append(Message(ROLES[role], content))  # type: ignore[arg-type]
    return tuple(made)


def _measured(read: Conversation, row: Mapping[str, Any]) -> Conversation:
    """With what a reading row says of its answer; of others, the completion is the accepted answer."""
    if "answers" not in row or "context_ids" not in row or "chosen" in row:
        return Conversation(read.prompt, read.completion, (read.completion,))
    numbers = {one: number for number, one in enumerate(row["context_ids"], start=1)}
    gold = tuple(sorted(numbers[one] for one in row.get("gold_ids", ()) if one in numbers))
    return Conversation(read.prompt, read.completion, tuple(row["answers"]), gold, tuple(row["context_ids"]))
