"""The prompt of a conversation's last turn, and how it is cut to fit the model's window.

Passages matter more than earlier turns, but a follow-up cannot be understood without the turn before it. So earlier turns may take a quarter
of the space; the best passages come next and, if all of them fit, further turns fill the rest. The oldest turns and the worst passages are
left out; if no passage fits together with the turns, all turns are left out. A chat client's own task (Open WebUI's "### Task:": a title,
tags, follow-up questions) is passed on without a search; only the oldest part of its history may be left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self, TypeVar

from graph.answer.citations import check_citations
from graph.answer.context import fit_excerpts, in_prompt_order, largest_fitting
from graph.answer.prompt import answer_messages, is_no_answer, parse_answer
from graph.errors import UserError
from graph.text.prompting import read_prompt
from graph.types import AnswerForm, Evidence, Excerpt, LanguageModel, Message
from serve.conversation.turn_rules import Intent

_TOO_LONG = re.compile(
    r"context[ _-]?(?:length|size|window)|max_model_len|too long|too many (?:\w+ )?tokens|exceeds? .{0,40}\btokens?\b",
    re.IGNORECASE,
)


def is_too_long(refusal: str) -> bool:
    """Whether a server's refusal is about the length of the prompt.

    >>> is_too_long("This model's maximum context length is 1024 tokens"), is_too_long("n must be at most 4")
    (True, False)
    """
    return _TOO_LONG.search(refusal) is not None


MAX_EXCHANGES, MAX_CHARACTERS = 20, 24_000
"""Limits on the history that is read, however large the model's window."""


@dataclass(frozen=True)
class Exchange:
    """A user's turn and the reply to it, without citations, since their numbers do not refer to the next prompt's passages."""

    question: str
    reply: str

    @property
    def answer(self) -> str:
        """The answer in the reply, as one line; "" if the reply says that there is none."""
        answer = " ".join(parse_answer(self.reply).answer.split())
        return "" if is_no_answer(answer) else answer

    def messages(self) -> tuple[Message, Message]:
        """The two messages in a prompt."""
        return Message("user", self.question), Message("assistant", self.reply)


def exchanges_of(history: Iterable[Message]) -> tuple[Exchange, ...]:
    """The latest turns in pairs, as chat templates need them: successive turns of one role are joined. Replies before the first question, and a
    question at the end without a reply, are left out.

    >>> exchanges_of([Message("user", "Who built it?"), Message("assistant", "The yard [2]."), Message("user", "When?")])
    (Exchange(question='Who built it?', reply='The yard.'),)
    """
    paired: list[list[Message]] = []
    for turn in history:
        if turn.role == "user" and (not paired or paired[-1][-1].role == "assistant"):
            paired.append([turn])
        elif paired:
            paired[-1].append(turn)
    latest, remaining_chars = [], MAX_CHARACTERS
    for turns in reversed(paired[-MAX_EXCHANGES:]):
        question, reply = _text_of_role(turns, "user"), _text_of_role(turns, "assistant")
        remaining_chars -= len(question) + len(reply)
        if remaining_chars < 0:
            break
        if reply:
            latest.append(Exchange(question, check_citations(reply, 0).text))
    return tuple(reversed(latest))


def _text_of_role(turns: Iterable[Message], role: str) -> str:
    return "\n".join(turn.content for turn in turns if turn.role == role)


ANSWER_DIVISOR = 4
"""A quarter of the window is reserved for the answer, or the request's limit if that is less."""
TURNS_DIVISOR = 4
"""If not everything fits, earlier turns may take a quarter of the space that the question and the instructions leave."""


class PromptTooLong(UserError):
    """Even the shortest form of a prompt is longer than the model's window."""


@dataclass(frozen=True)
class Prompt:
    """The model's input. `ranked` are excerpts, best first, `exchanges` earlier turns, oldest first; `left_out` counts excerpts that did not fit.

    If no earlier turn is shown, a question appears as its search query, which can be understood alone.
    """

    intent: Intent
    turn: str
    instructions: str
    evidence: Evidence
    ranked: tuple[Excerpt, ...]
    exchanges: tuple[Exchange, ...]
    escape: Callable[[str], str]
    left_out: int = 0
    form: AnswerForm = "reasoned"

    @property
    def excerpts(self) -> tuple[Excerpt, ...]:
        """The excerpts in the order of their numbers."""
        return in_prompt_order(self.ranked, self.evidence)

    @property
    def found_nothing(self) -> bool:
        """Whether a question has no excerpts: nothing was found, or the answer was judged absent from the documents."""
        return self.intent != "remark" and not self.ranked

    def messages(self) -> list[Message]:
        """System message, earlier turns, then passages and question as in training, or the remark; special tokens are escaped in all of them."""
        question = self.turn if self.exchanges or self.intent == "request" else self.evidence.query
        system, user = answer_messages(question, self.excerpts, self.form)
        if self.intent == "remark":
            system, user = Message("system", read_prompt("serve/remark.txt")), Message("user", self.turn)
        instructions = [system.content, *([read_prompt("serve/request.txt")] if self.intent == "request" else [])]
        instructions += [self.instructions] if self.instructions else []
        turns = [message for exchange in self.exchanges for message in exchange.messages()]
        messages = [Message("system", "\n\n".join(instructions)), *turns, user]
        return [replace(message, content=self.escape(message.content)) for message in messages]

    def with_less(self, exchanges: int, ranked: Sequence[Excerpt]) -> Prompt:
        """The prompt with only the latest `exchanges` turns and these excerpts."""
        latest = self.exchanges[len(self.exchanges) - exchanges :]
        left_out = self.left_out + len(self.ranked) - len(ranked)
        return replace(self, exchanges=latest, ranked=tuple(ranked), left_out=left_out)

    def halved(self) -> Prompt | None:
        """The prompt with half of the passages and turns; None if that changes nothing."""
        half = self.with_less(len(self.exchanges) // 2, self.ranked[: -(-len(self.ranked) // 2)])
        return half if (half.exchanges, half.ranked) != (self.exchanges, self.ranked) else None


class Halvable(Protocol):
    """A prompt, task or request that can be shortened."""

    def halved(self) -> Self | None: ...


H = TypeVar("H", bound=Halvable)


def halvings(whole: H) -> Iterator[H]:
    """A prompt, task or request, then half of it, a quarter, and so on, until nothing more can be left out. The caller tries one after the
    other until the engine no longer finds the prompt too long.
    """
    part: H | None = whole
    while part is not None:
        yield part
        part = part.halved()


def standalone_prompt(evidence: Evidence, ranked: tuple[Excerpt, ...]) -> Prompt:
    """The prompt of a question without a conversation. Special tokens are left for the engine to escape."""
    return Prompt("question", evidence.query, "", evidence, ranked, (), str)


def prompt_limit(window: int, max_answer_tokens: int) -> int:
    """The number of tokens that a prompt may have in a window: all but those reserved for the answer."""
    return window - min(max_answer_tokens, window // ANSWER_DIVISOR)


def fit_prompt(prompt: Prompt, model: LanguageModel, max_answer_tokens: int) -> tuple[Prompt, int]:
    """The part of a prompt that fits the window of `model`, in the model's answer form, and the answer's limit in tokens.

    If no window is known, the part is the whole prompt.
    PromptTooLong when the prompt does not fit even with only its shortest passage or, if no passage was found, with the question alone.
    """
    prompt = replace(prompt, form=model.form)
    window = model.window()
    if window is None:
        return prompt, max_answer_tokens
    limit = prompt_limit(window, max_answer_tokens)

    def length(exchanges: int, ranked: tuple[Excerpt, ...]) -> int:
        return model.prompt_tokens(prompt.with_less(exchanges, ranked).messages())

    exchanges, ranked = len(prompt.exchanges), prompt.ranked
    if (prompt_tokens := length(exchanges, ranked)) > limit:
        question_tokens = length(0, ())
        share = question_tokens + max(limit - question_tokens, 0) // TURNS_DIVISOR
        exchanges = largest_fitting(exchanges, lambda count: length(count, ()) <= share)
        ranked = fit_excerpts(ranked, lambda excerpts: length(exchanges, excerpts) <= limit)
        if not ranked:
            exchanges = 0
            ranked = fit_excerpts(prompt.ranked, lambda excerpts: length(0, excerpts) <= limit)
        if ranked == prompt.ranked:
            exchanges = largest_fitting(len(prompt.exchanges), lambda count: length(count, ranked) <= limit)
        if (prompt_tokens := length(exchanges, ranked)) > limit or len(ranked) < min(len(prompt.ranked), 1):
            shortest = min((length(0, (excerpt,)) for excerpt in prompt.ranked), default=question_tokens)
            raise PromptTooLong(
                f"a prompt of at least {shortest:,} tokens, {question_tokens:,} of them for question and instructions",
                f"at most {limit:,} of the model's window of {window:,}; the rest is reserved for the answer",
                "ask in fewer words, use a model with a larger window, or index with a smaller max_passage_tokens",
            )
    return prompt.with_less(exchanges, ranked), min(max_answer_tokens, window - prompt_tokens)


MIN_HISTORY_CHARS = 200
TASK_HEADING, HISTORY_START, HISTORY_END = "### Task:\n", "<chat_history>", "</chat_history>"


@dataclass(frozen=True)
class Task:
    """A task that a chat client sets: instructions before and after the history, and the history. `system` is the client's system message."""

    system: str
    before: str
    history: str
    after: str

    def messages(self) -> list[Message]:
        """The model's input."""
        system = [Message("system", self.system)] if self.system else []
        return [*system, Message("user", self.before + self.history + self.after)]

    def halved(self) -> Task | None:
        """The task with the later half of its history; None if little of the history is left."""
        if len(self.history) < MIN_HISTORY_CHARS:
            return None
        return replace(self, history=self.history[len(self.history) // 2 :])


def read_task(turns: Sequence[str], system: str) -> Task | None:
    """The task in a conversation whose user turns are `turns`; None for a question about the documents.

    >>> task = read_task(["### Task:\\nFind a title.\\n<chat_history>\\nUSER: Hi\\n</chat_history>"], "")
    >>> task is not None and task.history, read_task(["What is a ### Task:?"], "")
    ('\\nUSER: Hi\\n', None)
    """
    text = turns[0].lstrip() if len(turns) == 1 else ""
    start, end = text.find(HISTORY_START) + len(HISTORY_START), text.rfind(HISTORY_END)
    if not text.startswith(TASK_HEADING) or not len(HISTORY_START) <= start <= end:
        return None
    return Task(system, text[:start], text[start:end], text[end:])


def fit_task(task: Task, model: LanguageModel, max_answer_tokens: int) -> tuple[Task, int]:
    """The part of a task that fits the window of `model`, and the reply's limit in tokens.

    If no part fits, the smallest is returned; if no window is known, the whole task.
    """
    window = model.window()
    if window is None:
        return task, max_answer_tokens
    limit = prompt_limit(window, max_answer_tokens)
    parts = list(halvings(task))
    part = next((each for each in parts if model.prompt_tokens(each.messages()) <= limit), parts[-1])
    return part, max(1, min(max_answer_tokens, window - model.prompt_tokens(part.messages())))
