"""The call ledger: a language model that stores every call that finished with "stop", and never repeats it.

Rows are in one SQLite file, or in the index's database. A row is committed when the call returns, so a crash loses only calls in progress. A
row contains a hash of its content: a row that was altered is dropped, and its call is made again. If the ledger of an index is damaged, it is
renamed, and its intact rows are copied to a new one (graph/store/ledger_file.py). A row also contains the duration of its call, so that a replay
counts the time of the original call."""

from __future__ import annotations

import heapq
import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import compress
from pathlib import Path
from threading import Lock
from typing import Protocol

import stamina

from graph.errors import UserError
from graph.shared.console import say
from graph.shared.disk import report_full_disk
from graph.store.index_settings import has_database
from graph.store.ledger_file import (
    CALL_COLUMNS,
    LEDGER,
    LEDGER_TABLE,
    CallRow,
    decode,
    is_damage,
    is_intact,
    is_truncated,
    ledger_damage,
    renew_ledger,
    row_hash,
)
from graph.types import AnswerForm, Completion, CompletionRequest, Message
from serve.types import Engine

LOCK_TIMEOUT_S = 60.0


class Calls(Protocol):
    """Stored calls, one row per key. Failures raise UserError."""

    def get(self, key: str) -> CallRow | None:
        """The row of a call, or None; its hash is not checked."""

    def put(self, row: CallRow) -> None:
        """Commit a row, unless one with its key exists."""

    def drop(self, key: str) -> None:
        """Remove the row with this key."""


def open_calls(file: Path) -> Calls:
    """The rows in a file, or in the database of an index that uses one."""
    if file.name == LEDGER and has_database(file.parent):
        from graph.postgres.store import PostgresCalls

        return PostgresCalls(file.parent)
    return SqliteCalls(file)


class SqliteCalls:
    """Rows in an SQLite file; safe for several processes, and for threads that use it one at a time.

    A damaged ledger of an index is replaced, and a message is printed.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        with _as_user_error(file):
            truncated = is_truncated(file)
        if truncated:
            self._renew()
            return
        try:
            self._database = _open_database(file)
        except sqlite3.DatabaseError:
            self._renew()

    def get(self, key: str) -> CallRow | None:
        return self._run(f"SELECT {CALL_COLUMNS} FROM calls WHERE key = ?", (key,))

    def put(self, row: CallRow) -> None:
        self._run("INSERT INTO calls VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", row)

    def drop(self, key: str) -> None:
        self._run("DELETE FROM calls WHERE key = ?", (key,))

    def _run(self, statement: str, parameters: Sequence[object]) -> CallRow | None:
        """Run a statement as a transaction and return its first row; if the file turns out to be damaged, repeat it in a new one."""
        try:
            return self._try(statement, parameters)
        except sqlite3.DatabaseError:
            with suppress(sqlite3.Error):
                self._database.close()
            self._renew()
        try:
            return self._try(statement, parameters)
        except sqlite3.DatabaseError as problem:
            raise _not_a_ledger(self._file, problem) from None

    def _try(self, statement: str, parameters: Sequence[object]) -> CallRow | None:
        with _as_user_error(self._file), self._database:
            row: CallRow | None = self._database.execute(statement, parameters).fetchone()
            return row

    def _renew(self) -> None:
        """Replace an index's damaged ledger with a new file, unless another process has just done so; UserError for a file that is not a ledger."""
        if self._file.name == LEDGER and ledger_damage(self._file.parent):
            say(renew_ledger(self._file))
        try:
            self._database = _open_database(self._file)
        except sqlite3.DatabaseError as problem:
            raise _not_a_ledger(self._file, problem) from None


def _not_a_ledger(file: Path, problem: sqlite3.Error) -> UserError:
    found = f"{file}: not a call ledger ({problem})"
    return UserError(found, "a new file, or a ledger of this version", "rename it, or name another file")


def _is_locked(problem: Exception) -> bool:
    return isinstance(problem, sqlite3.OperationalError) and problem.sqlite_errorcode == sqlite3.SQLITE_BUSY


def _open_database(file: Path) -> sqlite3.Connection:
    with _as_user_error(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        database = sqlite3.connect(file, timeout=LOCK_TIMEOUT_S, check_same_thread=False)
        database.text_factory = decode
        _switch_to_wal(database)
        database.execute("PRAGMA synchronous = FULL")
        with database:
            database.execute("BEGIN IMMEDIATE")
            if database.execute("SELECT 1 FROM sqlite_master WHERE name = 'calls'").fetchone() is None:
                database.execute(LEDGER_TABLE)
        database.execute(f"SELECT {CALL_COLUMNS} FROM calls LIMIT 0")
    return database


@stamina.retry(on=_is_locked, attempts=None, timeout=LOCK_TIMEOUT_S, wait_initial=0.01, wait_max=0.2)
def _switch_to_wal(database: sqlite3.Connection) -> None:
    """Switch to WAL. Two processes that open a new file at the same time conflict here, and SQLite does not wait."""
    database.execute("PRAGMA journal_mode = WAL")


@contextmanager
def _as_user_error(file: Path) -> Iterator[None]:
    """Turn errors of SQLite and the disk into UserError, or DiskFull if there is no space; an error that shows damage is raised unchanged."""
    try:
        with report_full_disk(file):
            yield
    except (sqlite3.Error, OSError) as problem:
        if isinstance(problem, sqlite3.DatabaseError) and is_damage(problem):
            raise
        found = f"{file}: not usable as a call ledger ({problem})"
        raise UserError(found, "a writable file that no other process has locked", "name another file") from None


@dataclass(frozen=True)
class _CachedCall:
    """A finished call and its seconds: in a batch, an equal share of the batch's time."""

    completion: Completion
    seconds: float


class Ledger:
    """`model`, with its finished calls stored; safe for several threads and several processes.

    Two equal calls at the same moment may both reach the model; the first result is stored for both.
    """

    def __init__(self, model: Engine, file: Path) -> None:
        self._model = model
        self._lock = Lock()
        self._file, self._calls = file, open_calls(file)

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def form(self) -> AnswerForm:
        return self._model.form

    def complete(self, requests: Sequence[CompletionRequest]) -> list[Completion]:
        """Completions in the order of the requests, stored ones without a call; the other calls run concurrently, up to the engine's limit."""
        keys = [call_key(self.name, request) for request in requests]
        distinct = dict(zip(keys, requests, strict=True))
        finished = {key: cached for key in distinct if (cached := self._lookup(key)) is not None}
        missing = [(key, request) for key, request in distinct.items() if key not in finished]
        parallel, size = max(1, self._model.in_flight), self._model.batch_size
        groups = [missing[start : start + size] for start in range(0, len(missing), size)]
        with ThreadPoolExecutor(parallel, thread_name_prefix="ledger") as pool:
            for calls in pool.map(self._call, groups):  # After an error, `map` cancels the calls that have not started.
                finished |= calls
        return _with_replay_times(
            [finished[key] for key in keys], _first_call_flags(keys, {key for key, _ in missing}), parallel
        )

    def count_tokens(self, text: str) -> int:
        return self._model.count_tokens(text)

    def window(self) -> int | None:
        return self._model.window()

    def prompt_tokens(self, messages: Sequence[Message]) -> int:
        return self._model.prompt_tokens(messages)

    def _call(self, group: Sequence[tuple[str, CompletionRequest]]) -> dict[str, _CachedCall]:
        started = time.perf_counter()
        completions = self._model.complete([request for _, request in group])
        seconds = (time.perf_counter() - started) / len(group)
        return {
            key: self._store(key, completion, seconds) for (key, _), completion in zip(group, completions, strict=True)
        }

    def _lookup(self, key: str) -> _CachedCall | None:
        """The stored call, or None; a row that was altered is removed, and a message is printed."""
        with self._lock:
            row = self._calls.get(key)
            if row is not None and not is_intact(row):
                say(f"{self._file}: a row was altered: {key[:12]}; it is dropped, and its call is made again")
                self._calls.drop(key)
                return None
        if row is None:
            return None
        _, _, text, prompt_tokens, completion_tokens, _, microseconds = row
        return _CachedCall(Completion(text, "stop", prompt_tokens, completion_tokens), microseconds / 1e6)

    def _store(self, key: str, completion: Completion, seconds: float) -> _CachedCall:
        """Commit a call that finished with "stop", unless an equal call is stored; return the stored completion, if there is one, with this call's time."""
        if completion.finish_reason != "stop":
            return _CachedCall(completion, seconds)
        fields = (key, self.name, completion.text, completion.prompt_tokens, completion.completion_tokens)
        microseconds = round(1e6 * seconds)
        with self._lock, suppress(UnicodeEncodeError):  # a lone surrogate, which no database can store
            self._calls.put((*fields, row_hash(*fields, microseconds), microseconds))
        stored = self._lookup(key)
        return _CachedCall(stored.completion if stored is not None else completion, seconds)


def call_key(model: str, request: CompletionRequest) -> str:
    """The hash of everything that determines a completion: model name, messages and parameters."""
    messages = [[message.role, message.content] for message in request.messages]
    schema = None if request.schema is None else dict(request.schema)
    parts = [model, messages, request.max_tokens, request.temperature, request.seed, schema]
    return sha256(json.dumps(parts, sort_keys=True).encode("utf-8")).hexdigest()


def parallel_seconds(seconds: Sequence[float], parallel: int) -> float:
    """The total duration of calls that start in order as soon as fewer than `parallel` are running.

    >>> parallel_seconds([3.0, 1.0, 1.0, 2.0], 2)
    4.0
    """
    free_at = [0.0] * parallel
    for duration in seconds:
        heapq.heapreplace(free_at, free_at[0] + duration)
    return max(free_at)


def _with_replay_times(calls: Sequence[_CachedCall], is_new: Sequence[bool], parallel: int) -> list[Completion]:
    """The completions; those not marked in `is_new` become replays, which share the time that they add, in proportion to their durations."""
    seconds = [call.seconds for call in calls]
    added = parallel_seconds(seconds, parallel) - parallel_seconds(list(compress(seconds, is_new)), parallel)
    replayed = sum(duration for duration, new in zip(seconds, is_new, strict=True) if not new)
    share = added / replayed if replayed else 0.0
    return [
        call.completion if new else replace(call.completion, replayed_seconds=share * call.seconds)
        for call, new in zip(calls, is_new, strict=True)
    ]


def _first_call_flags(keys: Sequence[str], missing: set[str]) -> list[bool]:
    """For each key, whether it is in `missing` and occurs for the first time in `keys`."""
    first_positions = {key: position for position, key in reversed(list(enumerate(keys)))}
    return [key in missing and first_positions[key] == position for position, key in enumerate(keys)]
