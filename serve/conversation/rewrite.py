"""The last turn of a conversation as it is searched for: the question as it stands, or made to stand alone by a model or by rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from graph.answer.context import largest_fitting
from graph.extract.entities import find_entities
from graph.retrieve.parts.query import Caller
from graph.text.prompting import quote, read_prompt
from graph.text.replies import ReplyModel, Sentence
from graph.types import LanguageModel, Message
from serve.conversation.prompt import Exchange
from serve.conversation.turn_rules import Intent, dependence, intent, is_short

MAX_TURNS, MAX_TURN_CHARS = 3, 1_000
MAX_CARRIED_CHARS = 300
"""Of an earlier question, and of its answer: what is carried must not drown the question."""
MAX_ENTITIES = 6
MAX_TOKENS = 160
MAX_GROWTH_CHARS = 300
"""A question that a model rewrote may be so much longer than the one that was asked; a longer one is no rewriting."""


class StandaloneQuestion(ReplyModel):
    """What the model replies."""

    question: Sentence


@dataclass(frozen=True)
class Question:
    """What a turn asks for, and the text that is searched for it ("": nothing is searched).

    `by` tells what made the text: the turn itself, the model, words of earlier turns, or, for a request about the last answer, the
    question that it answered.
    """

    text: str
    intent: Intent = "question"
    by: Literal["itself", "model", "turns", "earlier"] = "itself"


def read_turn(history: Sequence[Exchange], turn: str, model: LanguageModel) -> Question:
    """What the turn after `history` asks for; `model` is asked only for a question that may not stand by itself.

    Raises ModelGone (graph/retrieve/parts/query.py) when the model does not answer.
    """
    kind = intent(turn) if history else "question"
    if kind == "remark":
        return Question("", kind)
    if kind == "request" and (topic := _topic(history)):
        return Question(carry(topic[:-1], topic[-1].asked), kind, "earlier")
    stands = dependence(turn)
    if not history or stands == "alone":
        return Question(turn)
    made = _rewritten(history, turn, model)
    if made and (stands == "unknown" or quote(made).casefold() != quote(turn).casefold()):
        return Question(made, by="model")
    text = carry(history, turn)
    return Question(text, by="itself" if text == turn else "turns")


def carry(history: Sequence[Exchange], question: str) -> str:
    """By rule: a question that leans on what was said, after the question before it and its answer, as one text.

    Where that question leaned, too, the names of those that it leaned on follow in brackets.

    >>> carry([Exchange("Who built the Lantern?", "The Marlow Yard.")], "When was that?")
    'Who built the Lantern? The Marlow Yard. When was that?'
    """
    topic = _topic(history)
    if not topic or dependence(question) == "alone" or (dependence(question) == "unknown" and not is_short(question)):
        return question
    text = f"{_exchange_text(topic[-1])} {question}"
    found = {
        entity: None
        for each in topic[:-1]
        for entity in find_entities(f"of {_exchange_text(each)}")
        if entity not in text
    }
    return f"{text} ({', '.join(list(found)[:MAX_ENTITIES])})" if found else text


def _topic(history: Sequence[Exchange]) -> tuple[Exchange, ...]:
    """The last question that was searched for and those that it leans on, back to one that stands by itself."""
    found: list[Exchange] = []
    for each in reversed(history):
        if intent(each.asked) == "question":
            found.append(each)
            if len(found) == MAX_TURNS or dependence(each.asked) == "alone":
                break
    return tuple(reversed(found))


def _exchange_text(exchange: Exchange) -> str:
    asked = " ".join(exchange.asked.split())[-MAX_CARRIED_CHARS:]
    return f"{asked} {exchange.answer[:MAX_CARRIED_CHARS]}".rstrip()


def _rewritten(history: Sequence[Exchange], question: str, model: LanguageModel) -> str:
    """The question as `model` makes it stand alone; "" where its reply cannot be used."""
    system, window = read_prompt("serve/rewrite.txt"), model.window()

    def asked(last: int) -> str:
        turns = [turn for exchange in history[len(history) - last :] for turn in exchange.messages()]
        said = "\n".join(f"{turn.role}: {quote(turn.content[:MAX_TURN_CHARS])}" for turn in turns)
        return f"Conversation:\n{said}\n\nNew question: {quote(question)}"

    def fits(last: int) -> bool:
        prompt = (Message("system", system), Message("user", asked(last)))
        return window is None or model.prompt_tokens(prompt) <= window - MAX_TOKENS

    last = largest_fitting(min(len(history), MAX_TURNS), fits)
    if not last:
        return ""
    reply = Caller(model).ask(StandaloneQuestion, system, [asked(last)], MAX_TOKENS)[0]
    made = quote(reply.question) if reply is not None else ""
    return made if len(made) <= len(question) + MAX_GROWTH_CHARS else ""
