"""The file of a call ledger: its rows, and the handling of damage.

A row contains a hash of its content: a row that has changed is dropped, and its call repeated. A damaged file is renamed,
and replaced by a new one with the intact rows that SQLite can still read from it."""

import sqlite3
from contextlib import closing, suppress
from itertools import count
from pathlib import Path

from graph.shared.disk import report_full_disk
from graph.shared.ids import content_id
from graph.store.sqlite import open_to_read

LEDGER = "ledger.sqlite"
LEDGER_TABLE = """
CREATE TABLE calls (
    key TEXT PRIMARY KEY, model TEXT NOT NULL, text TEXT NOT NULL,
    prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL, hash TEXT NOT NULL, microseconds INTEGER NOT NULL
) WITHOUT ROWID
"""
CALL_COLUMNS = "key, model, text, prompt_tokens, completion_tokens, hash, microseconds"
CallRow = tuple[str, str, str, int, int, str, int]
"""A row: key, model, text, prompt tokens, completion tokens, hash, microseconds."""
DAMAGED_SUFFIX = ".damaged"
"""Suffix of the first damaged ledger; for later ones, a number follows it (".damaged2")."""
ILLEGIBLE = "SQLite cannot read it"
_DAMAGE_CODES = {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
"""SQLite's error codes for a file that is not a database, or that has damaged pages or another schema."""


def row_hash(key: str, model: str, text: str, prompt_tokens: int, completion_tokens: int, microseconds: int) -> str:
    """The hash by which a changed row is detected."""
    return content_id(key, model, text, *map(str, (prompt_tokens, completion_tokens, microseconds)))


def is_intact(row: CallRow) -> bool:
    """Whether a row has not changed since it was written; damage may also have changed the types of its values."""
    key, model, text, prompt_tokens, completion_tokens, stored_hash, microseconds = row
    types_match = [type(value) for value in row] == [str, str, str, int, int, str, int]
    return types_match and stored_hash == row_hash(key, model, text, prompt_tokens, completion_tokens, microseconds)


def decode(data: bytes) -> str:
    """The text of a value, with invalid bytes replaced; the hash of its row detects them."""
    return data.decode("utf-8", "replace")


def is_damage(problem: sqlite3.Error) -> bool:
    """Whether an SQLite error means damage, rather than a busy or read-only file."""
    return getattr(problem, "sqlite_errorcode", 0) & 0xFF in _DAMAGE_CODES


def is_truncated(file: Path) -> bool:
    """Whether an SQLite file is shorter than its header states (sqlite.org/fileformat.html, 1.3): SQLite opens such a file without an error and
    finds only the rows in the pages that are left.

    Also True for a moment while another process writes the write-ahead log into the file.
    """
    if not file.is_file():
        return False
    with file.open("rb") as opened:
        header = opened.read(100)
    page_bytes, pages = int.from_bytes(header[16:18], "big"), int.from_bytes(header[28:32], "big")
    return file.stat().st_size < pages * (65_536 if page_bytes == 1 else page_bytes)


def checkpoint_ledger(folder: Path) -> None:
    """Write the write-ahead log of an index's ledger into its file, if there is a ledger and it is not damaged."""
    if (folder / LEDGER).exists():
        with suppress(sqlite3.DatabaseError), closing(sqlite3.connect(folder / LEDGER)) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def renew_ledger(ledger: Path) -> str:
    """Rename a damaged ledger and its write-ahead log, and start a new one with its intact rows; return a message. Damaged ledgers renamed earlier stay."""
    rows = _intact_rows(ledger)
    partial = Path(f"{ledger}.partial")
    partial.unlink(missing_ok=True)
    with report_full_disk(ledger), closing(sqlite3.connect(partial)) as database, database:
        database.execute(LEDGER_TABLE)
        database.executemany("INSERT INTO calls VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", rows)
    names = (f"{ledger}{DAMAGED_SUFFIX}{number if number > 1 else ''}" for number in count(1))
    target = next(name for name in names if not Path(name).exists())
    for suffix in ("-wal", "-shm", ""):
        if (file := Path(f"{ledger}{suffix}")).exists():
            file.replace(f"{target}{suffix}")
    partial.replace(ledger)
    return (
        f"{ledger}: damaged; renamed to {Path(target).name}, and a new ledger contains its {len(rows):,} intact calls"
    )


def _intact_rows(ledger: Path) -> list[CallRow]:
    """The intact rows that SQLite can read from either end before an error."""
    rows: dict[str, CallRow] = {}
    for order in ("ASC", "DESC"):
        with suppress(sqlite3.DatabaseError), closing(_open(ledger)) as database:
            for row in database.execute(f"SELECT {CALL_COLUMNS} FROM calls ORDER BY key {order}"):
                if is_intact(row):
                    rows[row[0]] = row
    return list(rows.values())


def ledger_damage(folder: Path) -> str:
    """A description of damage to the ledger of an index; "" if it is intact or absent. DiskFull when SQLite has no space for its check."""
    file = folder / LEDGER
    if not file.exists():
        return ""
    try:
        with report_full_disk(folder), closing(_open(file)) as database:
            if database.execute("PRAGMA quick_check").fetchone() != ("ok",):
                return ILLEGIBLE
            has_table = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'calls'").fetchone() is not None
            rows = database.execute(f"SELECT {CALL_COLUMNS} FROM calls") if has_table else ()
            changed = sum(not is_intact(row) for row in rows)
    except sqlite3.DatabaseError as problem:
        if not is_damage(problem):
            raise
        return ILLEGIBLE
    return f"changed rows: {changed:,}" if changed else ""


def _open(file: Path) -> sqlite3.Connection:
    database = open_to_read(file)
    database.text_factory = decode
    return database
