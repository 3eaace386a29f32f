"""The call ledger: a language model that keeps every finished call and never makes it again.

One SQLite file, or a table beside the rows of an index that are in a database (serve/calls.py). A row is a result and its status at
once: it exists only when the call finished with "stop", and it is committed as soon as its call returns, so that a crash loses calls in
flight and no finished one. A row carries the hash of what it says: one that has changed is dropped, and its call made again.

A row keeps the time of its call, so that a replay costs whoever asks what the call itself would have: figures of two systems that
share calls can be compared. Rows of a ledger that was begun before times were kept have none.
"""

from __future__ import annotations

import heapq
import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import compress
from pathlib import Path
from threading import Lock

from graph.shared.types import AnswerForm, Completion, CompletionRequest, Message, Replay
from serve.calls import HASH, is_sound, open_calls, row_hash
from serve.types import Engine


@dataclass(frozen=True)
class Counts:
    """What a ledger saw since it was opened: calls answered from the file, calls made, and what those cost."""

    hits: int = 0
    misses: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True)
class _Kept:
    """A finished call and the seconds that it took: its share of its batch, where it was made in one. None: not known."""

    made: Completion
    seconds: float | None


class Ledger:
    """`model` behind a file of its finished calls; safe for several threads and several processes.

    Equal calls made at the same moment by two of them may both reach the model; the first result stands for both.
    """

    def __init__(self, model: Engine, file: Path) -> None:
        self._model = model
        self._lock = Lock()
        self._counts = Counts()
        self._calls = open_calls(file)

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def form(self) -> AnswerForm:
        return self._model.form

    @property
    def counts(self) -> Counts:
        return self._counts

    def complete(self, requests: Sequence[CompletionRequest]) -> list[Completion]:
        """Answers in the order asked, each from the file if it is there; calls not yet kept run as many at once as suit the engine."""
        keys = [call_key(self.name, request) for request in requests]
        wanted = dict(zip(keys, requests, strict=True))
        known = {key: kept for key in wanted if (kept := self._find(key)) is not None}
        missing = [(key, request) for key, request in wanted.items() if key not in known]
        self._count(Counts(hits=len(requests) - len(missing), misses=len(missing)))
        at_once = self._model.in_flight
        with ThreadPoolExecutor(at_once, thread_name_prefix="ledger") as pool:
            calls = [pool.submit(self._call, group) for group in _groups(missing, self._model.batch_size)]
            try:
                for call in calls:
                    known |= call.result()
            finally:
                for call in calls:
                    call.cancel()
        return _billed([known[key] for key in keys], _first_places(keys, {key for key, _ in missing}), at_once)

    def count_tokens(self, text: str) -> int:
        return self._model.count_tokens(text)

    def window(self) -> int | None:
        return self._model.window()

    def prompt_tokens(self, messages: Sequence[Message]) -> int:
        return self._model.prompt_tokens(messages)

    def _call(self, group: Sequence[tuple[str, CompletionRequest]]) -> dict[str, _Kept]:
        started = time.perf_counter()
        made = self._model.complete([request for _, request in group])
        seconds = (time.perf_counter() - started) / len(group)
        return {key: self._keep(key, completion, seconds) for (key, _), completion in zip(group, made, strict=True)}

    def _find(self, key: str) -> _Kept | None:
        """The kept call, or None; a row that is not as it was written is removed."""
        with self._lock:
            row = self._calls.get(key)
            if row is not None and not is_sound(row):
                self._calls.drop(key, str(row[HASH]))
                return None
        if row is None:
            return None
        _, _, text, prompt_tokens, completion_tokens, _, microseconds = row
        seconds = None if microseconds is None else microseconds / 1e6
        return _Kept(Completion(text, "stop", prompt_tokens, completion_tokens), seconds)

    def _keep(self, key: str, made: Completion, seconds: float) -> _Kept:
        """Commit a finished call, unless an equal one was first; returns the one that stands, with the time of this one."""
        self._count(Counts(prompt_tokens=made.prompt_tokens, completion_tokens=made.completion_tokens))
        if made.finish_reason != "stop":
            return _Kept(made, seconds)
        said = (key, self.name, made.text, made.prompt_tokens, made.completion_tokens)
        microseconds = round(1e6 * seconds)
        with self._lock:
            self._calls.put((*said, row_hash(*said, microseconds), microseconds))
        standing = self._find(key)
        return _Kept(standing.made if standing is not None else made, seconds)

    def _count(self, more: Counts) -> None:
        with self._lock:
            old = self._counts
            self._counts = Counts(
                old.hits + more.hits,
                old.misses + more.misses,
                old.prompt_tokens + more.prompt_tokens,
                old.completion_tokens + more.completion_tokens,
            )


def call_key(model: str, request: CompletionRequest) -> str:
    """The hash of everything that decides a completion: model name, messages and parameters."""
    messages = [[message.role, message.content] for message in request.messages]
    schema = None if request.schema is None else dict(request.schema)
    parts = [model, messages, request.max_tokens, request.temperature, request.seed, schema]
    return sha256(json.dumps(parts, sort_keys=True).encode("utf-8")).hexdigest()


def side_by_side(seconds: Sequence[float], at_once: int) -> float:
    """How long calls take together, each begun in its turn as soon as fewer than `at_once` are running.

    >>> side_by_side([3.0, 1.0, 1.0, 2.0], 2)
    4.0
    """
    free_at = [0.0] * at_once
    for each in seconds:
        heapq.heapreplace(free_at, free_at[0] + each)
    return max(free_at)


def _billed(calls: Sequence[_Kept], made: Sequence[bool], at_once: int) -> list[Completion]:
    """The completions, those that were not `made` now marked as replays, which share what they add to the time of the others."""
    seconds = [call.seconds or 0.0 for call in calls]
    added = side_by_side(seconds, at_once) - side_by_side(list(compress(seconds, made)), at_once)
    replayed = sum(each for each, now in zip(seconds, made, strict=True) if not now)
    share = added / replayed if replayed else 0.0
    return [
        call.made if now else replace(call.made, replay=Replay(None if call.seconds is None else share * call.seconds))
        for call, now in zip(calls, made, strict=True)
    ]


def _first_places(keys: Sequence[str], of: set[str]) -> list[bool]:
    """For each key whether it is one of `of`, and the first of its kind."""
    places = {key: place for place, key in reversed(list(enumerate(keys)))}
    return [key in of and places[key] == place for place, key in enumerate(keys)]


def _groups(
    calls: Sequence[tuple[str, CompletionRequest]], size: int
) -> Iterator[Sequence[tuple[str, CompletionRequest]]]:
    for start in range(0, len(calls), size):
        yield calls[start : start + size]
