"""What was said before, as questions with their answers, the oldest first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from graph.prompt.answer import is_no_answer, parse_answer
from graph.prompt.citations import check_citations
from graph.shared.types import Message

MAX_EXCHANGES, MAX_CHARACTERS = 20, 24_000
"""How far back a conversation is read, however large the window of the model."""


@dataclass(frozen=True)
class Exchange:
    """A turn of the user and the reply to it, without citations: their numbers meant other passages than the next prompt's."""

    asked: str
    replied: str

    @property
    def answer(self) -> str:
        """The reply's answer alone, as one line; "" where it says that there is none."""
        answer = " ".join(parse_answer(self.replied).answer.split())
        return "" if is_no_answer(answer) else answer

    def messages(self) -> tuple[Message, Message]:
        """As a prompt shows it."""
        return Message("user", self.asked), Message("assistant", self.replied)


def exchanges(history: Iterable[Message]) -> tuple[Exchange, ...]:
    """The latest turns in pairs, as chat templates want them; what is said before a first question or after no reply is left out.

    >>> exchanges([Message("user", "Who built it?"), Message("assistant", "The yard [2]."), Message("user", "When?")])
    (Exchange(asked='Who built it?', replied='The yard.'),)
    """
    paired: list[list[Message]] = []
    for turn in history:
        if turn.role == "user" and (not paired or paired[-1][-1].role == "assistant"):
            paired.append([turn])
        elif paired:
            paired[-1].append(turn)
    latest, room = [], MAX_CHARACTERS
    for turns in reversed(paired[-MAX_EXCHANGES:]):
        asked, replied = _said(turns, "user"), _said(turns, "assistant")
        room -= len(asked) + len(replied)
        if room < 0:
            break
        if replied:
            latest.append(Exchange(asked, check_citations(replied, 0).text))
    return tuple(reversed(latest))


def _said(turns: Iterable[Message], role: str) -> str:
    return "\n".join(turn.content for turn in turns if turn.role == role)
