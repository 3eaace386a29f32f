"""Seals: the checksums of index.sqlite and of its call ledger, as the last finished run left them.

A missing seal means that a run did not finish (`modegraph resume` does); a seal that does not match means damage.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal

from graph.arrays import checksum
from graph.errors import UserError
from graph.store import FILE

LEDGER = "ledger.sqlite"
SET_ASIDE = ".damaged"
"""Added to the name of a damaged ledger; a new one in its place takes over what can still be read of it (serve/ledger.py)."""


def seal_of(file: str) -> str:
    """The name of a file's seal."""
    return file + ".seal"


@contextmanager
def unsealed(folder: Path) -> Iterator[None]:
    """Break the seals while an index is written; seal it again at the end, or when nothing was changed after all.

    UserError when the call ledger is not as the last run left it.
    """
    if (folder / LEDGER).exists() and check_seal(folder, LEDGER) == "damaged":
        raise UserError(
            f"{folder / LEDGER}: its bytes are not those of the last run",
            "a sound call ledger",
            f"run: modegraph repair {folder} (what can be read of it is kept)",
        )
    seal = folder / seal_of(FILE)
    before = checksum(folder / FILE) if seal.exists() and check_seal(folder, FILE) == "intact" else None
    seal.unlink(missing_ok=True)
    (folder / seal_of(LEDGER)).unlink(missing_ok=True)
    try:
        yield
    except BaseException:
        if before is not None and checksum(folder / FILE) == before:
            _seal_ledger(folder)
            _write(seal, before)
        raise
    _seal_ledger(folder)
    _write(seal, checksum(folder / FILE))


def check_seal(folder: Path, file: str) -> Literal["intact", "unfinished", "damaged", "illegible"]:
    """Whether a file is as the last finished run left it; "illegible" when the seal itself has a changed byte."""
    seal = folder / seal_of(file)
    if not seal.exists():
        return "unfinished"
    lines = seal.read_bytes().split(b"\n")
    if len(lines) != 2 or lines[0] != lines[1]:
        return "illegible"
    return "intact" if checksum(folder / file).encode() == lines[0] else "damaged"


def set_ledger_aside(folder: Path) -> None:
    """Rename a damaged ledger, so that a new one is begun from its sound rows."""
    for suffix in ("", "-wal", "-shm"):
        file = folder / (LEDGER + suffix)
        if file.exists():
            file.replace(folder / (LEDGER + SET_ASIDE + suffix))
    (folder / seal_of(LEDGER)).unlink(missing_ok=True)


def _seal_ledger(folder: Path) -> None:
    """Seal the ledger, if there is one, with all that its write-ahead log holds brought into it."""
    if not (folder / LEDGER).exists():
        return
    with closing(sqlite3.connect(folder / LEDGER)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    _write(folder / seal_of(LEDGER), checksum(folder / LEDGER))


def _write(seal: Path, found: str) -> None:
    """The checksum twice, so that a changed byte in the seal is told from one in what it seals."""
    partial = seal.with_name(seal.name + ".partial")
    partial.write_text(f"{found}\n{found}")
    partial.replace(seal)
