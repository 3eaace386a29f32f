"""The search query for the last turn of a conversation: the question itself, or a version that stands alone, written by a model or by rule."""

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
"""The largest number of characters taken from an earlier question, and from its answer: more would outweigh the new question."""
MAX_ENTITIES = 6
MAX_TOKENS = 160
MAX_GROWTH_CHARS = 300
"""How many characters longer than the question a model's rewritten question may be; a longer one is discarded."""


class StandaloneQuestion(ReplyModel):
    """The model's reply."""

    question: Sentence


@dataclass(frozen=True)
class Question:
    """The intent of a turn, and its search query ("": no search).

    `by` is the origin of the query: the turn itself, the model, words of earlier turns, or, for a request about the last answer, the
    question that it answered.
    """

    text: str
    intent: Intent = "question"
    by: Literal["itself", "model", "turns", "earlier"] = "itself"


def read_turn(history: Sequence[Exchange], turn: str, model: LanguageModel) -> Question:
    """The intent and the search query of the turn after `history`; `model` is called only for a question that may not stand alone.

    Raises ModelUnavailable (graph/errors.py) when the model does not answer.
    """
    kind = intent(turn) if history else "question"
    if kind == "remark":
        return Question("", kind)
    if kind == "request" and (topic := _topic(history)):
        return Question(with_context(topic[:-1], topic[-1].question), kind, "earlier")
    turn_dependence = dependence(turn)
    if not history or turn_dependence == "alone":
        return Question(turn)
    rewritten = _rewrite(history, turn, model)
    if rewritten and (turn_dependence == "unknown" or rewritten.casefold() != quote(turn).casefold()):
        return Question(rewritten, by="model")
    text = with_context(history, turn)
    return Question(text, by="itself" if text == turn else "turns")


def with_context(history: Sequence[Exchange], question: str) -> str:
    """A question made to stand alone by rule: if it depends on the conversation, or may depend on it and is short, the previous question and its answer
    precede it.

    If the previous question in turn depends on earlier ones, the entities of their exchanges follow in brackets.

    >>> with_context([Exchange("Who built the Lantern?", "The Marlow Yard.")], "When was that?")
    'Who built the Lantern? The Marlow Yard. When was that?'
    """
    topic = _topic(history)
    if not topic or dependence(question) == "alone" or (dependence(question) == "unknown" and not is_short(question)):
        return question
    text = f"{_exchange_text(topic[-1])} {question}"
    earlier = (entity for exchange in topic[:-1] for entity in find_entities(f"of {_exchange_text(exchange)}"))
    entities = list(dict.fromkeys(entity for entity in earlier if entity not in text))[:MAX_ENTITIES]
    return f"{text} ({', '.join(entities)})" if entities else text


def _topic(history: Sequence[Exchange]) -> tuple[Exchange, ...]:
    """The last exchange whose turn is a question, and those that it depends on, back to a question that stands alone; at most MAX_TURNS."""
    exchanges: list[Exchange] = []
    for exchange in reversed(history):
        if intent(exchange.question) == "question":
            exchanges.append(exchange)
            if len(exchanges) == MAX_TURNS or dependence(exchange.question) == "alone":
                break
    return tuple(reversed(exchanges))


def _exchange_text(exchange: Exchange) -> str:
    question = " ".join(exchange.question.split())[-MAX_CARRIED_CHARS:]
    return f"{question} {exchange.answer[:MAX_CARRIED_CHARS]}".rstrip()


def _rewrite(history: Sequence[Exchange], question: str, model: LanguageModel) -> str:
    """The question as `model` rewrites it to stand alone; "" if not even the last exchange fits its window, or if its reply cannot be used."""
    system, window = read_prompt("serve/rewrite.txt"), model.window()

    def user_message(last: int) -> str:
        turns = [turn for exchange in history[len(history) - last :] for turn in exchange.messages()]
        conversation = "\n".join(f"{turn.role}: {quote(turn.content[:MAX_TURN_CHARS])}" for turn in turns)
        return f"Conversation:\n{conversation}\n\nNew question: {quote(question)}"

    def fits(last: int) -> bool:
        prompt = (Message("system", system), Message("user", user_message(last)))
        return window is None or model.prompt_tokens(prompt) <= window - MAX_TOKENS

    last = largest_fitting(min(len(history), MAX_TURNS), fits)
    if not last:
        return ""
    reply = Caller(model).ask(StandaloneQuestion, system, [user_message(last)], MAX_TOKENS)[0]
    rewritten = quote(reply.question) if reply is not None else ""
    return rewritten if len(rewritten) <= len(question) + MAX_GROWTH_CHARS else ""
