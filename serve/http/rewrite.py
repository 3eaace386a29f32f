"""A question of a conversation, made to stand alone, so that it can be searched for and answered from passages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from graph.extract.names import find_names, name_key
from graph.prompting import quote, read_prompt
from graph.retrieve.caller import Caller
from graph.structured import ReplyModel, Sentence
from graph.types import LanguageModel, Message

MAX_TURNS, MAX_TURN_CHARS = 6, 1_000
MAX_NAMES = 6
MAX_TOKENS = 160
MAX_GROWTH_CHARS = 300
"""A rewritten question may be so much longer than the one that was asked; a longer one is no rewriting."""


class StandingAlone(ReplyModel):
    """What the model replies."""

    question: Sentence


@dataclass(frozen=True)
class Question:
    """The question as it is searched for, and what made it stand alone: nothing, the model, or names of earlier turns."""

    text: str
    by: Literal["itself", "model", "names"]


def rewrite(history: Sequence[Message], question: str, model: LanguageModel) -> Question:
    """The question after `history` (oldest first), rewritten by `model`, or by rule where its reply cannot be used.

    Raises ModelGone (graph/retrieve/caller.py) when the model does not answer.
    """
    if not history:
        return Question(question, "itself")
    turns = [f"{turn.role}: {quote(turn.content[:MAX_TURN_CHARS])}" for turn in history[-MAX_TURNS:]]
    asked = "Conversation:\n" + "\n".join(turns) + f"\n\nNew question: {quote(question)}"
    reply = Caller(model).ask(StandingAlone, read_prompt("serve/rewrite.txt"), [asked], MAX_TOKENS)[0]
    made = quote(reply.question) if reply is not None else ""
    if made and len(made) <= len(question) + MAX_GROWTH_CHARS:
        return Question(made, "model")
    return with_names(history, question)


def with_names(history: Sequence[Message], question: str) -> Question:
    """The question with the names of earlier turns in brackets after it, the latest first, without those that it has.

    >>> with_names([Message("user", "Who built the Lantern?")], "And when did she sail?").text
    'And when did she sail? (Lantern)'
    """
    known = {name_key(name) for name in find_names(question)}
    names: dict[str, str] = {}
    for turn in reversed(history[-MAX_TURNS:]):
        for line in turn.content[:MAX_TURN_CHARS].splitlines():
            for name in find_names(line):
                if name_key(name) not in known:
                    names.setdefault(name_key(name), name)
    if not names:
        return Question(question, "itself")
    return Question(f"{question} ({', '.join(list(names.values())[:MAX_NAMES])})", "names")
