"""index.sqlite: the rows of an index in a file of its folder."""

import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from graph.config import parse_settings
from graph.errors import DamagedFile, UserError
from graph.shared.disk import report_full_disk
from graph.store.index_settings import IndexSettings
from graph.store.manifest import FORMAT, check_format
from graph.store.rows import Store

SQLITE_FILE = "index.sqlite"
INDEX_AGAIN = "index the documents into a new folder: modegraph index SRC --out NEW"
_DAMAGE_CODES = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
"""SQLite's error codes for damaged pages and for a file that is not a database; Python's error for text that is not UTF-8 has none."""
MAX_LOGGED_BYTES = 64 << 20
"""The size of the write-ahead log above which the writer of a sealed file runs a checkpoint; without a seal, SQLite decides when."""
WRITER_CACHE_BYTES = 128 << 20
"""Page cache of a writer: propositions and entities are looked up by hashes, which are scattered over the file."""
_LOG_HEAD_BYTES = 32
_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE documents (source TEXT PRIMARY KEY, title TEXT NOT NULL, text TEXT NOT NULL, metadata TEXT NOT NULL,
    hash TEXT NOT NULL, extracted INTEGER NOT NULL DEFAULT 0);
CREATE TABLE passages (row INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,
    source TEXT NOT NULL REFERENCES documents ON DELETE CASCADE, "order" INTEGER NOT NULL, "start" INTEGER NOT NULL,
    "end" INTEGER NOT NULL, reader TEXT NOT NULL, dropped INTEGER NOT NULL);
CREATE INDEX passages_of_document ON passages (source);
CREATE TABLE propositions (row INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, text TEXT NOT NULL);
CREATE TABLE entities (row INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, key TEXT NOT NULL);
CREATE TABLE occurrences (row INTEGER PRIMARY KEY, proposition INTEGER NOT NULL REFERENCES propositions,
    passage INTEGER NOT NULL REFERENCES passages ON DELETE CASCADE, "start" INTEGER NOT NULL, "end" INTEGER NOT NULL);
CREATE INDEX occurrences_of_passage ON occurrences (passage);
CREATE INDEX occurrences_of_proposition ON occurrences (proposition);
CREATE TABLE mentions (occurrence INTEGER NOT NULL REFERENCES occurrences ON DELETE CASCADE,
    entity INTEGER NOT NULL REFERENCES entities, spelling TEXT NOT NULL, PRIMARY KEY (occurrence, entity)) WITHOUT ROWID;
CREATE INDEX mentions_of_entity ON mentions (entity);
CREATE TABLE topics (row INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, text TEXT NOT NULL);
CREATE TABLE occurrence_topics (occurrence INTEGER NOT NULL REFERENCES occurrences ON DELETE CASCADE,
    topic INTEGER NOT NULL REFERENCES topics, PRIMARY KEY (occurrence, topic)) WITHOUT ROWID;
CREATE INDEX occurrences_of_topic ON occurrence_topics (topic);
CREATE TABLE facts (occurrence INTEGER NOT NULL REFERENCES occurrences ON DELETE CASCADE,
    subject INTEGER NOT NULL REFERENCES entities, relation TEXT NOT NULL, object INTEGER NOT NULL REFERENCES entities,
    PRIMARY KEY (occurrence, subject, relation, object)) WITHOUT ROWID;
CREATE INDEX facts_of_subject ON facts (subject);
CREATE INDEX facts_of_object ON facts (object);
CREATE TABLE quarantine (passage INTEGER PRIMARY KEY REFERENCES passages ON DELETE CASCADE, problem TEXT NOT NULL,
    reply TEXT NOT NULL, attempts INTEGER NOT NULL);
CREATE TABLE summaries (id TEXT PRIMARY KEY, layer INTEGER NOT NULL, text TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE changed (source TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE INDEX documents_to_extract ON documents (source) WHERE extracted = 0;
CREATE INDEX passages_by_reader ON passages (reader, dropped);
"""
"""`changed` lists the documents stored, read or deleted since the arrays were derived; the last two indexes avoid full table scans."""


BeforeCheckpoint = Callable[[Iterable[int], int], None]
"""Receives the numbers (from 1) of the pages of the file that are about to be written, and the size of a page in bytes."""


def damage_error(file: Path, problem: str = "its contents have changed since the last run") -> DamagedFile:
    """The error for a damaged index.sqlite."""
    return DamagedFile(f"{file}: {problem}", "the file as the last run left it", INDEX_AGAIN)


def _with_damage_error(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a cursor that raises `damage_error` when SQLite cannot read the file."""

    def run(cursor: "_Cursor", *arguments: object) -> Any:
        try:
            return method(cursor, *arguments)
        except sqlite3.DatabaseError as problem:
            not_utf8 = str(problem).startswith("Could not decode to UTF-8")
            if not not_utf8 and getattr(problem, "sqlite_errorcode", 0) & 0xFF not in _DAMAGE_CODES:
                raise
            assert isinstance(cursor.connection, _Connection)
            raise damage_error(cursor.connection.file, "SQLite cannot read it") from problem

    return run


class _Cursor(sqlite3.Cursor):
    execute = _with_damage_error(sqlite3.Cursor.execute)
    executemany = _with_damage_error(sqlite3.Cursor.executemany)
    fetchone = _with_damage_error(sqlite3.Cursor.fetchone)
    __next__ = _with_damage_error(sqlite3.Cursor.__next__)


class _Connection(sqlite3.Connection):
    """The connection of a store: its statements raise DamagedFile when SQLite cannot read the file."""

    file: Path

    def execute(self, statement: str, parameters: Any = (), /) -> Any:
        return self.cursor(_Cursor).execute(statement, parameters)

    def executemany(self, statement: str, parameters: Iterable[Any], /) -> Any:
        return self.cursor(_Cursor).executemany(statement, parameters)


def open_to_read(file: Path, factory: type[sqlite3.Connection] = sqlite3.Connection) -> sqlite3.Connection:
    """A read-only connection to an SQLite file. In a folder in which SQLite cannot create the file that readers share with writers, it does without."""
    alone = not os.access(file.parent, os.W_OK) and not file.with_name(f"{file.name}-wal").exists()
    uri = f"file:{quote(str(file))}?mode=ro{'&immutable=1' if alone else ''}"
    return sqlite3.connect(uri, uri=True, factory=factory)


def read_sqlite_settings(folder: Path) -> IndexSettings | None:
    """The settings of the index in a folder; None if its first run was interrupted before it stored a document. UserError when index.sqlite cannot be read,
    DiskFull when SQLite has no space for its auxiliary file.
    """
    try:
        with report_full_disk(folder), closing(open_to_read(folder / SQLITE_FILE)) as connection:
            has_tables = connection.execute("SELECT 1 FROM sqlite_master").fetchone()
            row = has_tables and connection.execute("SELECT value FROM meta WHERE key = 'settings'").fetchone()
        if row is None:
            return None
        settings = json.loads(row[0])
    except (sqlite3.DatabaseError, TypeError, ValueError) as problem:
        found = f"{folder / SQLITE_FILE}: not readable ({problem})"
        raise UserError(found, "an index", "index the documents into a new folder") from None
    return parse_settings(IndexSettings, settings, str(folder / SQLITE_FILE))


class SqliteStore(Store):
    """A connection to one index.sqlite: for the writer or, with `read_only`, for a reader. The writer of a sealed file passes `before_checkpoint`."""

    def __init__(
        self, folder: Path, read_only: bool = False, before_checkpoint: BeforeCheckpoint | None = None
    ) -> None:
        super().__init__()
        self._file, self._before_checkpoint = folder / SQLITE_FILE, before_checkpoint
        connection = (
            open_to_read(self._file, _Connection)
            if read_only
            else sqlite3.connect(self._file, isolation_level=None, factory=_Connection)
        )
        assert isinstance(connection, _Connection)
        connection.file = self._file
        self._connection: sqlite3.Connection = connection
        if not read_only:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA cache_size = -{WRITER_CACHE_BYTES >> 10}")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")
        if before_checkpoint is not None:
            connection.execute("PRAGMA wal_autocheckpoint = 0")
        if not read_only and self._format() == 0 and self.count("sqlite_master") == 0:
            connection.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {FORMAT}; COMMIT;")
        try:
            check_format(self._file, self._format())
        except UserError:
            connection.close()
            raise
        self._read_only = read_only

    def close(self) -> None:
        """Close the file; a writer first moves the write-ahead log into it (a checkpoint)."""
        try:
            if not self._read_only:
                self._checkpoint()
        finally:
            self._connection.close()

    def vacuum(self) -> None:
        self._connection.execute("VACUUM")

    def _begin(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def _undo(self) -> None:
        if self._connection.in_transaction:  # After some errors, SQLite has already rolled back.
            super()._undo()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with super().transaction():
            yield
        if self._before_checkpoint is not None and self._log.exists() and self._log.stat().st_size > MAX_LOGGED_BYTES:
            self._checkpoint()

    def _checkpoint(self) -> None:
        if self._before_checkpoint is not None:
            self._before_checkpoint(*_pages_in(self._log))
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    @property
    def _log(self) -> Path:
        return self._file.with_name(SQLITE_FILE + "-wal")

    def _format(self) -> int:
        return int(self._connection.execute("PRAGMA user_version").fetchone()[0])


def _pages_in(log: Path) -> tuple[list[int], int]:
    """The pages in SQLite's write-ahead log, and the size of a page in bytes (https://sqlite.org/fileformat.html, section 4)."""
    if not log.exists() or log.stat().st_size <= _LOG_HEAD_BYTES:
        return [], 0
    head = np.fromfile(log, ">u4", _LOG_HEAD_BYTES // 4)
    page_bytes, salt = int(head[2]), head[4:6]
    parts = [("page", ">u4"), ("pages", ">u4"), ("salt", ">u4", 2), ("sum", ">u4", 2), ("data", f"V{page_bytes}")]
    frame = np.dtype(parts)
    count = (log.stat().st_size - _LOG_HEAD_BYTES) // frame.itemsize
    frames = np.memmap(log, frame, "r", _LOG_HEAD_BYTES, (count,))
    return np.unique(frames["page"][(frames["salt"] == salt).all(axis=1)]).tolist(), page_bytes
