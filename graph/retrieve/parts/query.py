"""The inputs of a mode: the question, the language model that it may call (with its cost), and the settings."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, field_validator
from pydantic_core import PydanticKnownError

from graph.config import Settings
from graph.errors import ModelUnavailable, UserError
from graph.index.filters import Condition, parse_condition
from graph.random_walk import MAX_DAMPING
from graph.shared.modes import DEFAULT_MODE, Mode
from graph.text.replies import BadReply, ReplyModel, copies_example, parse_reply, retry_of, strict_schema
from graph.types import Completion, CompletionRequest, Floats, LanguageModel, Message

R = TypeVar("R", bound=ReplyModel)


@dataclass(frozen=True)
class ModelUsage:
    """The cost of a model. `replayed` calls were answered from a ledger; `seconds` includes `replayed_seconds`, the time that these would have taken."""

    calls: int = 0
    replayed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    replayed_seconds: float = 0.0


def usage_of(completions: Sequence[Completion], waited_seconds: float) -> ModelUsage:
    """The cost of completions of one batch, which took `waited_seconds`."""
    replayed = [each.replayed_seconds for each in completions if each.replayed_seconds is not None]
    return ModelUsage(
        calls=len(completions),
        replayed=len(replayed),
        prompt_tokens=sum(completion.prompt_tokens for completion in completions),
        completion_tokens=sum(completion.completion_tokens for completion in completions),
        seconds=waited_seconds + sum(replayed),
        replayed_seconds=sum(replayed),
    )


def total_usage(parts: Sequence[ModelUsage]) -> ModelUsage:
    """The total cost of consecutive calls."""
    return ModelUsage(*(sum(values) for values in zip(*map(astuple, parts), strict=True)))


def parallel_usage(parts: Sequence[ModelUsage]) -> ModelUsage:
    """The total cost of concurrent calls: all calls and tokens, but only the longest duration."""
    return replace(
        total_usage(parts),
        seconds=max((part.seconds for part in parts), default=0.0),
        replayed_seconds=max((part.replayed_seconds for part in parts), default=0.0),
    )


class Caller:
    """One question's use of a model. Safe to share between threads."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self._spent = ModelUsage()
        self._lock = Lock()
        self.first_unusable: str | None = None
        """The first unusable reply, or the server's reason for refusing a request; None without either. Replies to the callers of `in_threads` do not count."""

    @property
    def spent(self) -> ModelUsage:
        """The cost so far."""
        with self._lock:
            return self._spent

    @contextmanager
    def in_threads(self, count: int) -> Iterator[list["Caller"]]:
        """A caller for each of `count` concurrent threads; their cost is added to this caller's at the end."""
        callers = [Caller(self._model) for _ in range(count)]
        try:
            yield callers
        finally:
            self._add(parallel_usage([caller.spent for caller in callers]))

    def _add(self, more: ModelUsage) -> None:
        with self._lock:
            self._spent = total_usage([self._spent, more])

    def count_tokens(self, text: str) -> int:
        """The number of a text's tokens, by the model's tokenizer."""
        return self._model.count_tokens(text)

    def ask(
        self, kind: type[R], system: str, users: Sequence[str], max_tokens: int, **narrower: Mapping[str, Any]
    ) -> list[R | None]:
        """One structured reply to each of the `users` messages (one batch), each after the same `system` message.

        `narrower` adds keywords to fields in the schema of `kind`, as in strict_schema. After an unusable reply (not of `kind`,
        cut at `max_tokens`, or about the prompt's example), the request is repeated once, with the reason; None if that fails too,
        or if the server refuses the request. Raises ModelUnavailable if the model does not answer; if that happens only at the
        retry, and at least one reply was usable, the usable replies are returned.
        """
        requests = [
            CompletionRequest(
                (Message("system", system), Message("user", user)), max_tokens, schema=strict_schema(kind, **narrower)
            )
            for user in users
        ]
        replies = self._read(kind, requests)
        unusable = [(row, reply) for row, reply in enumerate(replies) if isinstance(reply, _UnusableReply)]
        try:
            retries = self._read(kind, [retry_of(requests[row], reply.text, reply.problem) for row, reply in unusable])
        except ModelUnavailable:
            if not any(isinstance(reply, kind) for reply in replies):
                raise
            retries = [None] * len(unusable)
        for (row, _), reply in zip(unusable, retries, strict=True):
            replies[row] = reply
        return [None if isinstance(reply, _UnusableReply) else reply for reply in replies]

    def _read(self, kind: type[R], requests: Sequence[CompletionRequest]) -> "list[R | _UnusableReply | None]":
        if not requests:
            return []
        started = time.perf_counter()
        try:
            completions = self._model.complete(requests)
        except UserError as problem:
            raise ModelUnavailable(str(problem), "", "") from None
        seconds = time.perf_counter() - started
        replies = [
            _read_one(kind, request.messages[1].content, completion)
            for request, completion in zip(requests, completions, strict=True)
        ]
        unusable = [row for row, reply in enumerate(replies) if reply is None or isinstance(reply, _UnusableReply)]
        if unusable and self.first_unusable is None:
            self.first_unusable = completions[unusable[0]].text
        self._add(usage_of(completions, seconds))
        return replies


@dataclass(frozen=True)
class _UnusableReply:
    text: str
    problem: str


def _read_one(kind: type[R], user: str, completion: Completion) -> "R | _UnusableReply | None":
    """A completion of the message `user`, parsed; None if the server refused the request, as it would refuse a retry."""
    if completion.finish_reason == "refused":
        return None
    if completion.finish_reason == "length":
        problem = f"it was cut after {completion.completion_tokens:,} tokens, so write less"
        return _UnusableReply(completion.text, problem)
    if copies_example(completion.text, user):
        return _UnusableReply("", "it was about the example")
    try:
        return parse_reply(kind, completion.text, [])
    except BadReply as bad:
        return _UnusableReply(completion.text, str(bad))


@dataclass(frozen=True)
class Query:
    """The question's text, its unit vector [D], and the model that may be called for it (None: no model)."""

    text: str
    vector_D: Floats
    model: Caller | None = None


BUILT_IN_SELECTORS = ("threshold", "llm", "none")
"""Any other name is the folder or the hub name (with a slash) of a trained selector."""
SELECTOR_FILE = "selector.safetensors"


class SuggestSettings(Settings):
    """The walk by which `local` and `global` suggest propositions (ToPG Eq. 3–8). The mode `hops` does not use it."""

    damping: float = Field(
        default=0.85,
        ge=0,
        le=MAX_DAMPING,
        description="probability that the walk continues; otherwise it restarts from a seed",
    )
    structure_weight: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="λ: weight of the graph's structure; similarity to the question weighs 1 − λ",
    )


class RetrieveSettings(Settings):
    """How evidence is retrieved."""

    mode: Mode = Field(DEFAULT_MODE, description="retrieval method")
    top_k: int = Field(
        5, ge=1, le=10_000, description="items to return: passages, propositions or nodes, whichever the mode ranks"
    )
    unit: Literal["passages", "propositions"] = Field(
        "passages", description="what statements and topics return: passages, or the propositions themselves"
    )
    where: tuple[str, ...] = Field((), description="conditions on documents, such as year>=1990 or source=reports/*")
    selector: str = Field(
        "threshold",
        description="what selects propositions in local and global: threshold, llm, or the folder or hub name of a trained selector; in hops, a selector trained with size=hop replaces the built-in one; none: threshold, and hops without a trained selector",
    )
    reranker: str = Field("", description="cross-encoder that reranks the mode's results: a folder or a hub name")
    layers: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (), description="layers whose nodes hierarchy returns: 0 is passages and summaries of chunks; empty: all"
    )
    suggestions: SuggestSettings = Field(
        SuggestSettings(), description="random walk of global, and of local unless a trained selector replaces it"
    )
    abstain: float | None = Field(
        None,
        ge=0,
        le=1,
        description="answer “not in the documents”, without calling a model, if the documents lack the answer with at least this probability; null: never",
    )
    max_context_tokens: int | None = Field(
        None, ge=1, description="longest context of an answer, in tokens of the model in use; null: no limit"
    )

    @field_validator("where")
    @classmethod
    def _check_conditions(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        try:
            for condition in value:
                parse_condition(condition)
        except UserError as problem:
            raise ValueError(str(problem)) from None
        return value

    @field_validator("selector")
    @classmethod
    def _check_selector(cls, value: str) -> str:
        if value in BUILT_IN_SELECTORS or "/" in value or _is_folder(value):
            return value
        expected = "'threshold', 'llm', 'none' or the folder or hub name of a trained selector"
        raise PydanticKnownError("literal_error", {"expected": expected})

    @cached_property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions of `where`, parsed."""
        return tuple(parse_condition(condition) for condition in self.where)


def _is_folder(name: str) -> bool:
    try:
        return bool(name) and Path(name).is_dir()
    except OSError:  # The name is too long.
        return False
