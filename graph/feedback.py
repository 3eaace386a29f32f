"""Readers' feedback on answers, stored with the index: votes, corrections, the right passage, preferences.

The store is feedback.sqlite in the index folder (one row per entry, never changed, deleted user by user; on disk when `add` returns, overwritten with
zeros when deleted), or a table in the index's database. Passages are stored by id, so that after a document is deleted only the text that answers
quote from it remains. Nothing in an index is derived from feedback."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from graph.errors import DamagedFile, UserError
from graph.shared.disk import report_full_disk
from graph.store.index_settings import has_database

if TYPE_CHECKING:
    from graph.postgres.connect import Connection

Rating = Literal["up", "down"]
Better = Literal["first", "second", "neither"]


@dataclass(frozen=True)
class GivenAnswer:
    """A model's answer and its reasoning, with their citations [n], where n counts `context_ids` from 1.

    `context_ids` are the ids of everything in the model's context (passages, propositions, summaries), retrieved by the mode `mode`.
    """

    model: str
    text: str
    reasoning: str = ""
    context_ids: tuple[str, ...] = ()
    mode: str = ""


@dataclass(frozen=True)
class Vote:
    """Whether an answer is good."""

    answer: GivenAnswer
    rating: Rating


@dataclass(frozen=True)
class Correction:
    """The right answer and, if the reader gave them, the reasoning and passages for it."""

    answer: GivenAnswer
    corrected: str
    reasoning: str = ""
    passage_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class RightPassage:
    """The passage that answers the question, out of those that were shown."""

    passage_id: str
    shown_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class Preference:
    """Which of two answers to the question is better."""

    first: GivenAnswer
    second: GivenAnswer
    better: Better


FeedbackContent = Vote | Correction | RightPassage | Preference
KINDS: Mapping[str, type[Any]] = {
    "vote": Vote,
    "correction": Correction,
    "passage": RightPassage,
    "preference": Preference,
}


@dataclass(frozen=True)
class Feedback:
    """One entry: the feedback of `user` on the answers to `question` at `at` (UTC, ISO 8601).

    `question` is the self-contained question that was searched for. `consent` is whether the entry may become training data.
    """

    id: str
    user: str
    at: str
    consent: bool
    question: str
    content: FeedbackContent


FeedbackRow = tuple[str, str, str, int, str, str, str]
"""The stored columns of an entry: id, user, at, consent, kind, question, content (as JSON)."""


class FeedbackFull(Exception):
    """The store has reached its size limit."""


def kind_of(content: FeedbackContent) -> str:
    """The kind of the content, by its name in KINDS."""
    return next(name for name, kind in KINDS.items() if isinstance(content, kind))


def row_of(entry: Feedback) -> FeedbackRow:
    """The stored columns of an entry."""
    content = json.dumps(asdict(entry.content))
    return entry.id, entry.user, entry.at, int(entry.consent), kind_of(entry.content), entry.question, content


def entry_of(row: FeedbackRow) -> Feedback:
    """The inverse of `row_of`; errors as in `content_of`."""
    identity, user, at, consent, kind, question, content = row
    return Feedback(identity, user, at, bool(consent), question, content_of(kind, json.loads(content)))


def content_of(kind: str, values: Mapping[str, Any]) -> FeedbackContent:
    """The content of a kind from its fields, as in JSON; KeyError for an unknown kind, TypeError for wrong fields."""
    fields = {name: _answer(value) if isinstance(value, Mapping) else _tuple(value) for name, value in values.items()}
    content: FeedbackContent = KINDS[kind](**fields)
    return content


def _answer(values: Mapping[str, Any]) -> GivenAnswer:
    return GivenAnswer(**{name: _tuple(value) for name, value in values.items()})


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


FEEDBACK = "feedback.sqlite"
FEEDBACK_FORMAT = 2
LOCK_TIMEOUT_S = 30.0
_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS feedback (row INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, user TEXT NOT NULL, at TEXT NOT NULL,
    consent INTEGER NOT NULL, kind TEXT NOT NULL, question TEXT NOT NULL, content TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS feedback_of_user ON feedback (user);
PRAGMA user_version = {FEEDBACK_FORMAT};
COMMIT;
"""
_USED_BYTES = (
    "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
)
_COLUMNS = 'id, "user", at, consent, kind, question, content'
_UNREADABLE = {0, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
"""SQLite's codes for a file that is damaged, not a database, or without the table; 0 marks an error that this module raises."""


class FeedbackFile:
    """The entries for the index in `folder`, at most about `max_bytes` of them; safe for several threads and processes.

    Every method raises DamagedFile for a file that cannot be read, and DiskFull when there is no space.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._file, self._max_bytes = folder / FEEDBACK, max_bytes

    def add(self, entry: Feedback) -> None:
        """Store an entry; FeedbackFull when the entries have reached their limit. Pages that a deletion freed do not count."""
        row = row_of(entry)
        with open_feedback_file(self._file, "rwc") as database, database:
            if database.execute(_USED_BYTES).fetchone()[0] >= self._max_bytes:
                raise FeedbackFull
            database.execute(f"INSERT INTO feedback ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    def all(self) -> list[Feedback]:
        """All entries, oldest first."""
        return self._read()

    def of_user(self, user: str) -> list[Feedback]:
        """The entries of a user, oldest first."""
        return self._read("WHERE user = ?", (user,))

    def delete_user(self, user: str) -> int:
        """Delete all entries of a user and return how many there were."""
        if not self._file.exists():
            return 0
        with open_feedback_file(self._file, "rw") as database, database:
            return database.execute("DELETE FROM feedback WHERE user = ?", (user,)).rowcount

    def _read(self, where: str = "", values: Sequence[object] = ()) -> list[Feedback]:
        if not self._file.exists():
            return []
        with open_feedback_file(self._file, "rw") as database:
            rows = database.execute(f"SELECT {_COLUMNS} FROM feedback {where} ORDER BY row", values)
            return [entry_of(row) for row in rows]


@contextmanager
def open_feedback_file(file: Path, mode: str) -> Iterator[sqlite3.Connection]:
    """A connection to the file of feedback, in SQLite's `mode`, while the context is open; DamagedFile for a damaged or wrong file; DiskFull when there is no space.

    Other errors of SQLite, such as that for a file locked by another process, pass through.
    """
    try:
        with report_full_disk(file), closing(_open_file(file, mode)) as database:
            yield database
    except (sqlite3.DatabaseError, ValueError, KeyError, TypeError) as problem:
        if isinstance(problem, sqlite3.Error) and getattr(problem, "sqlite_errorcode", 0) & 0xFF not in _UNREADABLE:
            raise
        found = f"{file}: not readable ({problem})"
        remedy = "restore it from a backup, or move it away to start an empty one"
        raise DamagedFile(found, "a feedback file of this version", remedy) from None


def _open_file(file: Path, mode: str) -> sqlite3.Connection:
    database = sqlite3.connect(f"file:{quote(str(file))}?mode={mode}", uri=True, timeout=LOCK_TIMEOUT_S)
    try:
        database.execute("PRAGMA synchronous = FULL")
        database.execute("PRAGMA secure_delete = ON")
        version = _format_of(database)
        if version == 0:
            database.executescript(_SCHEMA)
        elif version == 1:
            convert_format_1(database)
        elif version != FEEDBACK_FORMAT:
            raise sqlite3.DatabaseError(f"format {version}, but this version reads format {FEEDBACK_FORMAT}")
    except BaseException:
        database.close()
        raise
    return database


def _format_of(database: sqlite3.Connection) -> int:
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def convert_format_1(database: sqlite3.Connection) -> None:
    """Rename the column `said` of format 1, unless another process did so first."""
    with database:
        database.execute("BEGIN IMMEDIATE")
        if _format_of(database) == 1:
            database.execute("ALTER TABLE feedback RENAME COLUMN said TO content")
            database.execute(f"PRAGMA user_version = {FEEDBACK_FORMAT}")


class FeedbackDatabase:
    """The feedback on the index in `folder`, stored in a table of about `max_bytes` at most in its database; methods and errors as in `FeedbackFile`.

    Every method raises Unavailable while the database is down.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        from graph.postgres.connect import dsn_of

        self._dsn, self._max_bytes = dsn_of(folder), max_bytes

    def add(self, entry: Feedback) -> None:
        from graph.postgres.connect import replace_nul

        with self._transaction(to_add=True) as connection:
            (size,) = connection.execute("SELECT pg_total_relation_size('feedback')").fetchone() or (0,)
            full = int(str(size)) >= self._max_bytes
            if not full:
                insert = f"INSERT INTO feedback ({_COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s)"
                connection.execute(insert, row_of(replace(entry, question=replace_nul(entry.question))))
        if full:
            raise FeedbackFull

    def all(self) -> list[Feedback]:
        return self._read()

    def of_user(self, user: str) -> list[Feedback]:
        return self._read('WHERE "user" = %s', (user,))

    def delete_user(self, user: str) -> int:
        with self._transaction() as connection:
            return connection.execute('DELETE FROM feedback WHERE "user" = %s', (user,)).rowcount

    def _read(self, where: str = "", values: Sequence[object] = ()) -> list[Feedback]:
        with self._transaction() as connection:
            rows = connection.execute(f"SELECT {_COLUMNS} FROM feedback {where} ORDER BY row", values).fetchall()
        return [entry_of(row) for row in rows]  # type: ignore[arg-type]

    @contextmanager
    def _transaction(self, to_add: bool = False) -> Iterator[Connection]:
        """A transaction. Before an entry is added, the schema is migrated; otherwise it must be this version's."""
        from graph.postgres.connect import database_of, transaction
        from graph.postgres.schema import check_schema, migrate

        with transaction(self._dsn) as connection:
            (migrate if to_add else check_schema)(connection, database_of(self._dsn))
            yield connection


def open_feedback(folder: Path, max_bytes: int) -> FeedbackFile | FeedbackDatabase:
    """The feedback store of the index in a folder, which accepts entries until it reaches `max_bytes`."""
    return FeedbackDatabase(folder, max_bytes) if has_database(folder) else FeedbackFile(folder, max_bytes)


def check_writable(folder: Path) -> None:
    """UserError if feedback on the index in a folder cannot be stored there; a database is not checked."""
    for path in (folder, folder / FEEDBACK):
        if path.exists() and not has_database(folder) and not os.access(path, os.W_OK):
            expected = f"a folder to which the server may write {FEEDBACK}"
            remedy = "make it writable, or leave --feedback out"
            raise UserError(f"{path}: not writable, so feedback cannot be stored", expected, remedy)


def read_feedback(folder: Path) -> list[Feedback]:
    """All feedback on the index in a folder, oldest first; UserError if it cannot be read."""
    return open_feedback(folder, 0).all()
