"""The file of a call ledger: its rows, and what becomes of one that is damaged.

A row carries the hash of its content: one that has changed is dropped, and its call made again. A file that SQLite cannot read is put aside
under another name, and a new one begun with the sound rows that SQLite still finds in it."""

import sqlite3
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from urllib.parse import quote

from graph.shared.disk import report_full_disk
from graph.shared.ids import content_id

LEDGER = "ledger.sqlite"
LEDGER_TABLE = """
CREATE TABLE calls (
    key TEXT PRIMARY KEY, model TEXT NOT NULL, text TEXT NOT NULL,
    prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL, hash TEXT NOT NULL, microseconds INTEGER
) WITHOUT ROWID
"""
CallRow = tuple[str, str, str, int, int, str, int | None]
"""key, model, text, prompt tokens, completion tokens, hash, microseconds: a row of it."""
SET_ASIDE = ".damaged"
"""Added to the name of a damaged ledger, with a number from the second on."""
ILLEGIBLE = "SQLite cannot read it"
_DAMAGE_CODES = {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
"""What SQLite makes of a file that is no database, has damaged pages or another schema."""


def row_hash(
    key: str, model: str, text: str, prompt_tokens: int, completion_tokens: int, microseconds: int | None
) -> str:
    """What tells a row that was changed."""
    timed = () if microseconds is None else (str(microseconds),)
    return content_id(key, model, text, str(prompt_tokens), str(completion_tokens), *timed)


def is_intact(row: CallRow) -> bool:
    """Whether a row is as it was written; damage may have changed the types of its values too."""
    key, model, text, prompt_tokens, completion_tokens, proof, microseconds = row
    typed = [type(value) for value in row[:5]] == [str, str, str, int, int]
    return typed and proof == row_hash(key, model, text, prompt_tokens, completion_tokens, microseconds)


def decode(data: bytes) -> str:
    """A text column, changed bytes and all: its row's hash will tell."""
    return data.decode("utf-8", "replace")


def is_damage(problem: sqlite3.Error) -> bool:
    """Whether SQLite says that a file is not as it was written, rather than that it is busy or may not be written to."""
    return getattr(problem, "sqlite_errorcode", 0) & 0xFF in _DAMAGE_CODES


def fold_ledger(folder: Path) -> None:
    """Bring what the write-ahead log of an index's ledger holds into the file, if there is one and it is not damaged."""
    if (folder / LEDGER).exists():
        with suppress(sqlite3.DatabaseError), closing(sqlite3.connect(folder / LEDGER)) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def renew_ledger(ledger: Path) -> str:
    """Put a damaged ledger aside, with its write-ahead log, and begin a new one; what was done, in words. Earlier ones that were put aside stay."""
    rows = _sound_rows(ledger)
    partial = Path(f"{ledger}.partial")
    partial.unlink(missing_ok=True)
    with report_full_disk(ledger), closing(sqlite3.connect(partial)) as database, database:
        database.execute(LEDGER_TABLE)
        database.executemany("INSERT INTO calls VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", rows)
    names = (f"{ledger}{SET_ASIDE}{number if number > 1 else ''}" for number in count(1))
    target = next(name for name in names if not Path(name).exists())
    for suffix in ("-wal", "-shm", ""):
        if (file := Path(f"{ledger}{suffix}")).exists():
            file.replace(f"{target}{suffix}")
    partial.replace(ledger)
    return f"{ledger}: damaged; it is now {Path(target).name}, and a new one has its {len(rows):,} sound calls"


def _sound_rows(ledger: Path) -> list[CallRow]:
    """The intact rows that come before SQLite gives up, from either end."""
    found: dict[str, CallRow] = {}
    for order in ("ASC", "DESC"):
        with suppress(sqlite3.DatabaseError), closing(_open(ledger)) as database:
            for row in database.execute(f"SELECT * FROM calls ORDER BY key {order}"):
                if is_intact(row):
                    found[row[0]] = row
    return list(found.values())


def ledger_damage(folder: Path) -> str:
    """What is wrong with the ledger of an index, in words; "" where nothing is, or there is none. DiskFull when SQLite has no room to look."""
    file = folder / LEDGER
    if not file.exists():
        return ""
    try:
        with report_full_disk(folder), closing(_open(file)) as database:
            if database.execute("PRAGMA quick_check").fetchone() != ("ok",):
                return ILLEGIBLE
            made = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'calls'").fetchone() is not None
            changed = sum(not is_intact(row) for row in database.execute("SELECT * FROM calls")) if made else 0
    except sqlite3.DatabaseError as problem:
        if not is_damage(problem):
            raise
        return ILLEGIBLE
    return f"changed rows: {changed:,}" if changed else ""


def _open(file: Path) -> sqlite3.Connection:
    """A ledger, to be read."""
    database = sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True)
    database.text_factory = decode
    return database
