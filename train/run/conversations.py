"""Conversations in common formats: the rows of supervised fine-tuning, and those on which exported and served models are compared with the trained one.

The formats are our reading rows and preference pairs (the chosen side), TRL's prompt and completion, messages (OpenAI), conversations (ShareGPT)
and instruction, input, output (Alpaca), one JSON object per line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_synth.rows import MALFORMED, tuple_from_json
from graph.answer.citations import short_answer
from graph.errors import UserError
from graph.shared.jsonl import read_jsonl
from graph.types import Message
from train.run.data import check_prompt, refuses

ROLES = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "system": "system"}
FORMS = "prompt and completion, prompt and chosen, messages, conversations, or instruction and output"


@dataclass(frozen=True)
class Conversation:
    """A chat that ends with a user turn, the completion to learn, and the gold data by which answers are scored.

    `answers` are the accepted answers (empty: a refusal is correct), `context` the ids of the passages, `gold` the numbers of the passages to cite.
    """

    prompt: tuple[Message, ...]
    completion: str
    answers: tuple[str, ...] = ()
    gold: tuple[int, ...] = ()
    context: tuple[str, ...] = ()


def read_conversations(file: Path) -> list[Conversation]:
    """All distinct conversations of a file in order; UserError with the line number of the first unusable row, or if there are no rows."""
    rows: dict[Conversation, None] = {}
    for line, values in read_jsonl(file):
        where = f"{file} line {line}"
        try:
            row = conversation_of(values)
        except MALFORMED as problem:
            reason = f"no {problem}" if isinstance(problem, KeyError) else str(problem)
            found = f"{where}: not a conversation ({reason}); its keys are {', '.join(values)}"
            raise UserError(found, FORMS, "fix the row, or see docs/guide.md") from None
        check_prompt(row.prompt, where)
        if not row.completion.strip():
            raise UserError(f"{where}: the completion is {row.completion!r}", "a non-empty string", "remove the row")
        rows[row] = None
    if not rows:
        raise UserError(f"{file}: no rows", f"one JSON object per line: {FORMS}", "write it with `modegraph synth`")
    return list(rows)


def conversation_of(row: Mapping[str, Any]) -> Conversation:
    """One row in any of the formats; KeyError, TypeError, IndexError, AttributeError or ValueError for any other row."""
    if "messages" in row or "conversations" in row:
        turns = _turns(row.get("messages") or row["conversations"])
        if turns[-1].role != "assistant":
            raise ValueError(f"the last turn is the {turns[-1].role}'s, not the assistant's")
        return _with_gold(turns[:-1], turns[-1].content, {})
    if "instruction" in row:
        question = "\n\n".join(part for part in (row["instruction"], row.get("input") or "") if part)
        system = (Message("system", row["system"]),) if row.get("system") else ()
        return _with_gold((*system, Message("user", question)), _text(row["output"]), row)
    prompt = row["prompt"]
    turns = (Message("user", prompt),) if isinstance(prompt, str) else _turns(prompt)
    completion = row["completion"] if "completion" in row else row["chosen"]
    return _with_gold(turns, _text(completion), row)


def _text(completion: Any) -> str:
    """The text of a completion: the string itself, or the content of its only message; ValueError for anything else."""
    if isinstance(completion, str):
        return completion
    messages = _turns(completion) if isinstance(completion, list) else ()
    if [message.role for message in messages] != ["assistant"]:
        raise ValueError(f"the completion is neither a text nor one message of the assistant: {completion!r:.60}")
    return messages[0].content


def _turns(turns: Any) -> tuple[Message, ...]:
    """The messages of turns with OpenAI's role and content, or ShareGPT's from and value."""
    messages = []
    for turn in turns:
        role, content = (turn["role"], turn["content"]) if "role" in turn else (turn["from"], turn["value"])
        if role not in ROLES or not isinstance(content, str):
            raise ValueError(f"unsupported turn: role {role!r}, content {content!r:.40}")
        messages.append(Message(ROLES[role], content))  # type: ignore[arg-type]
    return tuple(messages)


def _with_gold(prompt: tuple[Message, ...], completion: str, row: Mapping[str, Any]) -> Conversation:
    """The conversation with the gold data of a reading row or the accepted answers of a pair; for other rows, the completion's own answer is accepted."""
    if "answers" not in row or "context_ids" not in row:
        return Conversation(prompt, completion, () if refuses(completion) else (short_answer(completion),))
    if "chosen" in row:
        return Conversation(prompt, completion, tuple_from_json(row["answers"]))
    context = tuple_from_json(row["context_ids"])
    numbers = {passage: number for number, passage in enumerate(context, start=1)}
    gold = tuple(sorted(numbers[passage] for passage in tuple_from_json(row.get("gold_ids", ())) if passage in numbers))
    return Conversation(prompt, completion, tuple_from_json(row["answers"]), gold, context)
