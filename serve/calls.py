"""The rows of the call ledger (serve/ledger.py): in a file of SQLite, or in the database that the index beside it names."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

import stamina

from graph.disk.room import full_disk_told
from graph.shared.errors import UserError
from graph.shared.ids import content_id
from graph.store.database import has_database
from graph.store.seal import LEDGER, LEDGER_TABLE, SET_ASIDE, CallRow, set_aside
from serve.salvage import PAGE_BYTES, salvage_rows

LOCK_TIMEOUT_S = 60.0
HASH: Final = 5
"""The column that holds the hash of the others."""


class Calls(Protocol):
    """Rows of calls by key. What is refused is a UserError."""

    def get(self, key: str) -> CallRow | None:
        """The row of a call, as it stands."""

    def put(self, row: CallRow) -> None:
        """Commit a row, unless one with its key was first."""

    def drop(self, key: str, proof: str) -> None:
        """Remove the row of that key and hash."""


def open_calls(file: Path) -> Calls:
    """The rows in a file; those of an index whose rows are in a database are there too."""
    if file.name == LEDGER and has_database(file.parent):
        from graph.postgres.store.calls import PostgresCalls

        return PostgresCalls(file.parent)
    return SqliteCalls(file)


class SqliteCalls:
    """A file; safe for several processes, and for threads that do not use it at once."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._database = _open_database(file)

    def get(self, key: str) -> CallRow | None:
        with _told(self._file):
            row: CallRow | None = self._database.execute("SELECT * FROM calls WHERE key = ?", (key,)).fetchone()
            return row

    def put(self, row: CallRow) -> None:
        with _told(self._file), self._database:
            _insert(self._database, row)

    def drop(self, key: str, proof: str) -> None:
        with _told(self._file), self._database:
            self._database.execute("DELETE FROM calls WHERE key = ? AND hash = ?", (key, proof))


def row_hash(
    key: str, model: str, text: str, prompt_tokens: int, completion_tokens: int, microseconds: int | None
) -> str:
    """What tells a row that was changed."""
    timed = () if microseconds is None else (str(microseconds),)
    return content_id(key, model, text, str(prompt_tokens), str(completion_tokens), *timed)


def is_sound(row: CallRow) -> bool:
    """Whether a row is as it was written."""
    key, model, text, prompt_tokens, completion_tokens, proof, microseconds = row
    return None not in row[:HASH] and proof == row_hash(
        key, model, text, prompt_tokens, completion_tokens, microseconds
    )


def _is_locked(problem: Exception) -> bool:
    return isinstance(problem, sqlite3.OperationalError) and problem.sqlite_errorcode == sqlite3.SQLITE_BUSY


def _open_database(file: Path) -> sqlite3.Connection:
    with _told(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        database = sqlite3.connect(file, timeout=LOCK_TIMEOUT_S, check_same_thread=False)
        database.text_factory = _decode
        database.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        _write_ahead(database)
        database.execute("PRAGMA synchronous = FULL")
        with database:
            database.execute("BEGIN IMMEDIATE")
            if database.execute("SELECT 1 FROM sqlite_master WHERE name = 'calls'").fetchone() is None:
                database.execute(LEDGER_TABLE)
                for damaged in set_aside(file):
                    for row in filter(is_sound, salvage_rows(damaged)):
                        _insert(database, row)
            elif "microseconds" not in [name for _, name, *_ in database.execute("PRAGMA table_info(calls)")]:
                database.execute("ALTER TABLE calls ADD COLUMN microseconds INTEGER")
        database.execute("SELECT hash FROM calls LIMIT 0")
    return database


@stamina.retry(on=_is_locked, attempts=None, timeout=LOCK_TIMEOUT_S, wait_initial=0.01, wait_max=0.2)
def _write_ahead(database: sqlite3.Connection) -> None:
    """Switch to WAL; two that open a new file at once are in each other's way here, and SQLite does not wait by itself."""
    database.execute("PRAGMA journal_mode = WAL")


@contextmanager
def _told(file: Path) -> Iterator[None]:
    """What SQLite or the disk refuses becomes a UserError; DiskFull where there is no room."""
    try:
        with full_disk_told(file):
            yield
    except (sqlite3.Error, OSError) as problem:
        raise UserError(
            f"{file}: no call ledger ({problem})",
            "a new file, or a ledger of this version",
            f"rename it to {file.name}{SET_ASIDE}: what is sound in it is then taken over",
        ) from None


def _decode(data: bytes) -> str:
    """A text column, changed bytes and all: its row's hash will tell."""
    return data.decode("utf-8", "replace")


def _insert(database: sqlite3.Connection, row: CallRow) -> None:
    database.execute("INSERT INTO calls VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", row)
