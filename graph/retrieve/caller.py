"""A language model as the strategies use it: structured replies, one re-ask, and an account of what one question cost."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import TypeVar

from graph.errors import UserError
from graph.prompting import fill
from graph.structured import BadReply, ReplyModel, parse_reply, plain, strict_schema
from graph.types import Completion, CompletionRequest, LanguageModel, Message

MAX_REPLY_CHARS = 2000
"""Of an unusable reply, shown to the model when it is asked again."""

R = TypeVar("R", bound=ReplyModel)


class ModelGone(UserError):
    """The model cannot be asked any more; a strategy ends with what it has."""


@dataclass(frozen=True)
class Spent:
    """What was asked of a model: calls (`unusable` of them gave nothing), tokens and seconds."""

    calls: int = 0
    unusable: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0


class Caller:
    """One question's use of a model. Safe to share between threads."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self._spent = Spent()
        self._lock = Lock()

    @property
    def spent(self) -> Spent:
        """The account so far."""
        with self._lock:
            return self._spent

    def count_tokens(self, text: str) -> int:
        """Tokens of a text, as the model counts them."""
        return self._model.count_tokens(text)

    def ask(self, kind: type[R], system: str, users: Sequence[str], max_tokens: int) -> list[R | None]:
        """One structured reply to each of `users` (asked together), each after the same `system` message.

        An unusable reply (not of `kind`, or cut at `max_tokens`) is asked for once more, with what was wrong; None where
        that fails too, and where the server refuses the request. Raises ModelGone when the model does not answer; when it goes
        away before a second asking, the replies that it gave stand.
        """
        first = [
            CompletionRequest(
                (Message("system", system), Message("user", user)), max_tokens, schema=strict_schema(kind)
            )
            for user in users
        ]
        replies = self._read(kind, first)
        again = [(row, reply) for row, reply in enumerate(replies) if isinstance(reply, _Unusable)]
        try:
            second = self._read(kind, [_asked_again(first[row], reply) for row, reply in again])
        except ModelGone:
            if not any(isinstance(reply, kind) for reply in replies):
                raise
            second = [None] * len(again)
        for (row, _), reply in zip(again, second, strict=True):
            replies[row] = reply
        return [None if isinstance(reply, _Unusable) else reply for reply in replies]

    def _read(self, kind: type[R], requests: Sequence[CompletionRequest]) -> "list[R | _Unusable | None]":
        if not requests:
            return []
        started = time.perf_counter()
        try:
            completions = self._model.complete(requests)
        except UserError as problem:
            raise ModelGone(str(problem), "", "") from None
        seconds = time.perf_counter() - started
        replies = [_read_one(kind, completion) for completion in completions]
        with self._lock:
            self._spent = replace(
                self._spent,
                calls=self._spent.calls + len(requests),
                unusable=self._spent.unusable + sum(reply is None or isinstance(reply, _Unusable) for reply in replies),
                prompt_tokens=self._spent.prompt_tokens + sum(each.prompt_tokens for each in completions),
                completion_tokens=self._spent.completion_tokens + sum(each.completion_tokens for each in completions),
                seconds=self._spent.seconds + seconds,
            )
        return replies


@dataclass(frozen=True)
class _Unusable:
    text: str
    problem: str


def _read_one(kind: type[R], completion: Completion) -> "R | _Unusable | None":
    """What a completion says; None if the server would not take the request, which it will not take the next time either."""
    if completion.finish_reason == "refused":
        return None
    if completion.finish_reason == "length":
        return _Unusable(completion.text, f"it was cut after {completion.completion_tokens:,} tokens, so write less")
    try:
        return parse_reply(kind, completion.text, [])
    except BadReply as problem:
        return _Unusable(completion.text, str(problem))


def _asked_again(request: CompletionRequest, reply: _Unusable) -> CompletionRequest:
    """The same question, followed by the unusable reply and what was wrong with it."""
    turns = (
        Message("assistant", plain(reply.text)[:MAX_REPLY_CHARS] or "(nothing)"),
        Message("user", fill("graph/again.txt", problem=reply.problem)),
    )
    return replace(request, messages=request.messages + turns)
