"""feedback.sqlite in the index folder: one row an entry, added and never changed, and deleted by user.

An entry is on disk when `add` returns. What is deleted is overwritten with zeros. Nothing of an index is derived from it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from graph.feedback.types import Feedback, FeedbackFull, entry_of, row_of
from graph.shared.errors import UserError

FEEDBACK = "feedback.sqlite"
FEEDBACK_FORMAT = 1
LOCK_TIMEOUT_S = 30.0
_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS feedback (row INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, user TEXT NOT NULL, at TEXT NOT NULL,
    consent INTEGER NOT NULL, kind TEXT NOT NULL, question TEXT NOT NULL, said TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS feedback_of_user ON feedback (user);
PRAGMA user_version = {FEEDBACK_FORMAT};
COMMIT;
"""
_COLUMNS = "id, user, at, consent, kind, question, said"


class FeedbackFile:
    """The entries of the index in `folder`, at most `max_bytes` of them; safe for several threads and processes."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._file, self._max_bytes = folder / FEEDBACK, max_bytes

    def add(self, entry: Feedback) -> None:
        """Keep an entry; FeedbackFull when there is no room."""
        if self._file.exists() and self._file.stat().st_size >= self._max_bytes:
            raise FeedbackFull
        with closing(_open(self._file, "rwc")) as database, database:
            database.execute(f"INSERT INTO feedback ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)", row_of(entry))

    def all(self) -> list[Feedback]:
        """All entries, oldest first; UserError for a file that cannot be read."""
        with _told(self._file):
            return _read(self._file)

    def of_user(self, user: str) -> list[Feedback]:
        """What a user said, oldest first."""
        return _read(self._file, "WHERE user = ?", (user,))

    def delete_user(self, user: str) -> int:
        """Delete all that a user said; how many entries that was."""
        if not self._file.exists():
            return 0
        with closing(_open(self._file, "rw")) as database, database:
            return database.execute("DELETE FROM feedback WHERE user = ?", (user,)).rowcount


def _read(file: Path, where: str = "", values: Sequence[object] = ()) -> list[Feedback]:
    if not file.exists():
        return []
    with closing(_open(file, "rw")) as database:
        rows = database.execute(f"SELECT {_COLUMNS} FROM feedback {where} ORDER BY row", values).fetchall()
    return [entry_of(row) for row in rows]


def _open(file: Path, mode: str) -> sqlite3.Connection:
    database = sqlite3.connect(f"file:{quote(str(file))}?mode={mode}", uri=True, timeout=LOCK_TIMEOUT_S)
    try:
        database.execute("PRAGMA synchronous = FULL")
        database.execute("PRAGMA secure_delete = ON")
        found = database.execute("PRAGMA user_version").fetchone()[0]
        if mode == "rwc" and found == 0:
            database.executescript(_SCHEMA)
        elif found != FEEDBACK_FORMAT:
            raise sqlite3.DatabaseError(f"format {found}, this version reads {FEEDBACK_FORMAT}")
    except BaseException:
        database.close()
        raise
    return database


@contextmanager
def _told(file: Path) -> Iterator[None]:
    """A file that cannot be read, in words."""
    try:
        yield
    except (sqlite3.DatabaseError, ValueError, KeyError, TypeError) as problem:
        found = f"{file}: not readable ({problem})"
        raise UserError(found, "a file of feedback", "restore it from a copy, or move it away to begin anew") from None
