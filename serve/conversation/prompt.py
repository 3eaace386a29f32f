"""The prompt of a conversation's last turn, and how much of it the model's window holds.

Passages matter more than earlier turns, but a follow-up means nothing without the turn before it: earlier turns may take a quarter of the
room, then come the best passages, then as many more turns as fit. The oldest turns and the worst passages are left out. A chat client's own
task (Open WebUI's "### Task:": a title, tags, follow-up questions) is passed on without a search; the oldest of its history goes first."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

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
    """Whether a refusal is about the length of the prompt.

    >>> is_too_long("This model's maximum context length is 1024 tokens"), is_too_long("n must be at most 4")
    (True, False)
    """
    return _TOO_LONG.search(refusal) is not None


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


def exchanges_of(history: Iterable[Message]) -> tuple[Exchange, ...]:
    """The latest turns in pairs, as chat templates want them; what is said before a first question or after no reply is left out.

    >>> exchanges_of([Message("user", "Who built it?"), Message("assistant", "The yard [2]."), Message("user", "When?")])
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
        asked, replied = _text_of_role(turns, "user"), _text_of_role(turns, "assistant")
        room -= len(asked) + len(replied)
        if room < 0:
            break
        if replied:
            latest.append(Exchange(asked, check_citations(replied, 0).text))
    return tuple(reversed(latest))


def _text_of_role(turns: Iterable[Message], role: str) -> str:
    return "\n".join(turn.content for turn in turns if turn.role == role)


ANSWER_SHARE = 4
"""A quarter of the window is kept for the answer, or what the request allows it, if that is less."""
TURNS_SHARE = 4


class PromptTooLong(UserError):
    """Even the least of a prompt is longer than the model's window."""


@dataclass(frozen=True)
class Prompt:
    """What the engine reads. `ranked` are excerpts, best first, `exchanges` earlier turns, oldest first; `left_out` did not fit.

    Where no earlier turn is shown the question is asked as it was searched for, which stands alone.
    """

    intent: Intent
    asked: str
    instructions: str
    evidence: Evidence
    ranked: tuple[Excerpt, ...]
    exchanges: tuple[Exchange, ...]
    escape: Callable[[str], str]
    left_out: int = 0
    form: AnswerForm = "reasoned"

    @property
    def excerpts(self) -> tuple[Excerpt, ...]:
        """In the order of their numbers."""
        return in_prompt_order(self.ranked, self.evidence)

    def messages(self) -> list[Message]:
        """System, earlier turns, and the question after its passages in the form of training; special tokens are broken in all."""
        shown = self.asked if self.exchanges or self.intent == "request" else self.evidence.query
        system, user = answer_messages(shown, self.excerpts, self.form)
        if self.intent == "remark":
            system, user = Message("system", read_prompt("serve/remark.txt")), Message("user", self.asked)
        told = [system.content, *([read_prompt("serve/request.txt")] if self.intent == "request" else [])]
        told += [self.instructions] if self.instructions else []
        turns = [turn for exchange in self.exchanges for turn in exchange.messages()]
        whole = [Message("system", "\n\n".join(told)), *turns, user]
        return [replace(turn, content=self.escape(turn.content)) for turn in whole]

    def with_less(self, exchanges: int, ranked: Sequence[Excerpt]) -> Prompt:
        """With so many of the latest turns, and these excerpts."""
        kept = self.exchanges[len(self.exchanges) - exchanges :]
        return replace(
            self, exchanges=kept, ranked=tuple(ranked), left_out=self.left_out + len(self.ranked) - len(ranked)
        )

    def halved(self) -> Prompt | None:
        """With half of the passages and of the turns; None where that is all the same."""
        half = self.with_less(len(self.exchanges) // 2, self.ranked[: -(-len(self.ranked) // 2)])
        return half if (half.exchanges, half.ranked) != (self.exchanges, self.ranked) else None


def standalone_prompt(evidence: Evidence, ranked: tuple[Excerpt, ...]) -> Prompt:
    """The prompt of a question that stands alone; its special tokens are the engine's care."""
    return Prompt("question", evidence.query, "", evidence, ranked, (), str)


def fit_prompt(prompt: Prompt, model: LanguageModel, max_answer_tokens: int) -> tuple[Prompt, int]:
    """What of a prompt the window of `model` holds, in the form of its answers, and how long one may be; all of it where no window is known.

    PromptTooLong when not even the shortest passage fits, or, where none was found, the question alone.
    """
    prompt = replace(prompt, form=model.form)
    window = model.window()
    if window is None:
        return prompt, max_answer_tokens
    limit = window - min(max_answer_tokens, window // ANSWER_SHARE)

    def length(exchanges: int, ranked: tuple[Excerpt, ...]) -> int:
        return model.prompt_tokens(prompt.with_less(exchanges, ranked).messages())

    exchanges, ranked = len(prompt.exchanges), prompt.ranked
    if (whole := length(exchanges, ranked)) > limit:
        alone = length(0, ())
        share = alone + max(limit - alone, 0) // TURNS_SHARE
        exchanges = largest_fitting(exchanges, lambda last: length(last, ()) <= share)
        ranked = fit_excerpts(ranked, lambda first: length(exchanges, first) <= limit)
        if ranked == prompt.ranked:
            exchanges = largest_fitting(len(prompt.exchanges), lambda last: length(last, ranked) <= limit)
        if (whole := length(exchanges, ranked)) > limit or len(ranked) < min(len(prompt.ranked), 1):
            least = min((length(0, (each,)) for each in prompt.ranked), default=alone)
            raise PromptTooLong(
                f"a prompt of {least:,} tokens at least, {alone:,} of them the question and its instructions",
                f"{limit:,} of the model's window of {window:,}, the rest being for the answer",
                "ask in fewer words, use a model with a larger window, or index with a smaller max_passage_tokens",
            )
    return prompt.with_less(exchanges, ranked), min(max_answer_tokens, window - whole)


TASK_REPLY_SHARE = 4
"""A quarter of the window is kept for the reply, or what the request allows it, if that is less."""
MIN_HISTORY_CHARS = 200
TASK_HEADING, HISTORY_START, HISTORY_END = "### Task:\n", "<chat_history>", "</chat_history>"


@dataclass(frozen=True)
class Task:
    """A task: its instructions, before and after the history, and the history. `system` are the client's own system messages."""

    system: str
    before: str
    history: str
    after: str

    def messages(self) -> list[Message]:
        """What the model reads."""
        told = [Message("system", self.system)] if self.system else []
        return [*told, Message("user", self.before + self.history + self.after)]

    def halved(self) -> Task | None:
        """With the later half of the history; None where little of it is left."""
        if len(self.history) < MIN_HISTORY_CHARS:
            return None
        return replace(self, history=self.history[len(self.history) // 2 :])


def read_task(turns: Sequence[str], system: str) -> Task | None:
    """The task that a conversation of the user's `turns` alone is; None for one that asks the documents.

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
    """What of a task the window of `model` holds, and how long the reply may be then; all of it where no window is known."""
    window = model.window()
    if window is None:
        return task, max_answer_tokens
    limit = window - min(max_answer_tokens, window // TASK_REPLY_SHARE)
    while model.prompt_tokens(task.messages()) > limit and (less := task.halved()) is not None:
        task = less
    return task, max(1, min(max_answer_tokens, window - model.prompt_tokens(task.messages())))
