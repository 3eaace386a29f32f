"""A language model as the strategies use it: structured replies, one re-ask, and an account of what one question cost."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from threading import Lock
from typing import TypeVar

from graph.shared.errors import UserError
from graph.shared.types import Completion, CompletionRequest, LanguageModel, Message
from graph.text.prompting import fill
from graph.text.structured import BadReply, ReplyModel, parse_reply, plain, strict_schema

MAX_REPLY_CHARS = 2000
"""Of an unusable reply, shown to the model when it is asked again."""

R = TypeVar("R", bound=ReplyModel)


class ModelGone(UserError):
    """The model cannot be asked any more; a strategy ends with what it has."""


@dataclass(frozen=True)
class Spent:
    """What was asked of a model: calls (`unusable` of them gave nothing), tokens and seconds.

    `replayed` calls were answered from a ledger; `replayed_seconds` of the seconds are what they took when they were made, but for
    the `untimed` among them, whose time is not known.
    """

    calls: int = 0
    unusable: int = 0
    replayed: int = 0
    untimed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    replayed_seconds: float = 0.0


def spent_on(completions: Sequence[Completion], waited_seconds: float, unusable: int = 0) -> Spent:
    """What completions cost that were asked for together and waited for so long."""
    replays = [one.replay for one in completions if one.replay is not None]
    replayed_seconds = sum(replay.seconds or 0.0 for replay in replays)
    return Spent(
        calls=len(completions),
        unusable=unusable,
        replayed=len(replays),
        untimed=sum(replay.seconds is None for replay in replays),
        prompt_tokens=sum(one.prompt_tokens for one in completions),
        completion_tokens=sum(one.completion_tokens for one in completions),
        seconds=waited_seconds + replayed_seconds,
        replayed_seconds=replayed_seconds,
    )


def summed(parts: Sequence[Spent]) -> Spent:
    """What was spent one after another."""
    return Spent(*(sum(values) for values in zip(*map(astuple, parts), strict=True)))


def beside_each_other(parts: Sequence[Spent]) -> Spent:
    """What was spent at the same time: all calls and tokens, and the seconds of those that took longest."""
    return replace(
        summed([Spent(), *parts]),
        seconds=max((part.seconds for part in parts), default=0.0),
        replayed_seconds=max((part.replayed_seconds for part in parts), default=0.0),
    )


class Caller:
    """One question's use of a model. Safe to share between threads."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self._spent = Spent()
        self._lock = Lock()
        self.first_unusable: str | None = None
        """The first reply that could not be used, or the server's reason to refuse; None where there was none."""

    @property
    def spent(self) -> Spent:
        """The account so far."""
        with self._lock:
            return self._spent

    @contextmanager
    def in_threads(self, count: int) -> Iterator[list["Caller"]]:
        """A caller for each of `count` threads that work side by side; what they spent is added to this one at the end."""
        callers = [Caller(self._model) for _ in range(count)]
        try:
            yield callers
        finally:
            self._add(beside_each_other([caller.spent for caller in callers]))

    def _add(self, more: Spent) -> None:
        with self._lock:
            self._spent = summed([self._spent, more])

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
        unusable = [at for at, reply in enumerate(replies) if reply is None or isinstance(reply, _Unusable)]
        if unusable and self.first_unusable is None:
            self.first_unusable = completions[unusable[0]].text
        self._add(spent_on(completions, seconds, len(unusable)))
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
