"""Seals: the checksums of index.sqlite (by block) and of its call ledger, as the last finished run left them.

A missing seal means that a run did not finish (`modegraph resume` does); a seal that does not match means damage. A ledger that SQLite
cannot read is damaged, sealed or not. A file that is written in a few places need not be read whole to be sealed again."""

import glob
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import xxhash

from graph.errors import UserError
from graph.shared.disk import report_full_disk
from graph.shared.ids import has_sum, quick_sum
from graph.store.sqlite import SQLITE_FILE

BLOCK_BYTES = 1 << 20
_HEAD = "XXH3 by blocks of"


@dataclass(frozen=True)
class BlockSums:
    """The XXH3 of every block of a file, the last one cut at its end."""

    bytes: int
    blocks: tuple[str, ...]

    @classmethod
    def of(cls, file: Path) -> "BlockSums":
        """Those of a file as it is now."""
        return cls(0, ()).again(file, ())

    def again(self, file: Path, written: Iterable[int]) -> "BlockSums":
        """Those of the file as it is now, when nothing but the blocks `written`, and what came behind the last one, has changed."""
        count = -(-file.stat().st_size // BLOCK_BYTES)
        changed = {*written, *range(max(0, len(self.blocks) - 1), count)}
        kept = dict(enumerate(self.blocks[:count]))
        made = {block: _block_sum(file, block, BLOCK_BYTES) for block in changed if block < count}
        return BlockSums(file.stat().st_size, tuple((kept | made)[block] for block in range(count)))

    def hold(self, file: Path, blocks: Iterable[int]) -> bool:
        """Whether these blocks, those that there were, are as they were."""
        there = [block for block in blocks if block < len(self.blocks)]
        return all(_block_sum(file, block, self.bytes - block * BLOCK_BYTES) == self.blocks[block] for block in there)

    @property
    def text(self) -> str:
        """All in one file, with a checksum of that."""
        told = "\n".join([f"{_HEAD} {BLOCK_BYTES} bytes, {self.bytes} in all", *self.blocks])
        return f"{told}\n{xxhash.xxh3_128_hexdigest(told.encode())}"

    @classmethod
    def read(cls, text: str) -> "BlockSums | None":
        """Those that `text` tells; None where they are told in another form or a byte of it has changed."""
        told, _, own = text.rpartition("\n")
        if not told.startswith(_HEAD) or xxhash.xxh3_128_hexdigest(told.encode()) != own:
            return None
        head, *blocks = told.split("\n")
        return cls(int(head.split()[-3]), tuple(blocks))


def _block_sum(file: Path, block: int, most: int) -> str:
    """The XXH3 of a block, or of the first bytes of it."""
    with file.open("rb") as opened:
        opened.seek(block * BLOCK_BYTES)
        return xxhash.xxh3_128_hexdigest(opened.read(min(most, BLOCK_BYTES)))


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
"""Added to the name of a damaged ledger, with a number from the second on; a new one in its place takes over what is sound in
them (serve/ledger.py)."""
INDEX_AGAIN = "index the documents into a new folder: modegraph index SRC --out NEW"
_WAL_FILES = ("-wal", "-shm")

SealState = Literal["intact", "unfinished", "damaged", "illegible"]


def seal_of(file: str) -> str:
    """The name of a file's seal."""
    return file + ".seal"


class Sealing:
    """What a writer tells of index.sqlite: which pages it is about to write there, where the file was sealed by blocks."""

    def __init__(self, folder: Path, before: BlockSums | None) -> None:
        self._file, self.before, self._written = folder / SQLITE_FILE, before, set[int]()
        self.found_damage = False

    def write(self, pages: Iterable[int], page_bytes: int) -> None:
        """Take note of pages (from 1) before they are written. UserError where one is not as the last run left it: a new seal would hide that."""
        if self.before is None:
            return
        blocks = {(page - 1) * page_bytes // BLOCK_BYTES for page in pages} - self._written
        if not self.before.hold(self._file, blocks):
            self.found_damage = True
            raise _damage_error(self._file, INDEX_AGAIN)
        self._written |= blocks

    def now(self) -> BlockSums:
        """The checksums of the file as it is now."""
        return BlockSums.of(self._file) if self.before is None else self.before.again(self._file, self._written)


@contextmanager
def unsealed(folder: Path) -> Iterator[Sealing]:
    """Break the seals while an index is written; seal it again at the end, or when nothing was changed after all.

    UserError when index.sqlite, where it is written, or the call ledger is not as the last run left it: a new seal would hide that.
    """
    seal = folder / seal_of(SQLITE_FILE)
    sealing = Sealing(folder, _sealed_sums(folder))
    if has_ledger(folder):
        _undamaged_state(folder, LEDGER, f"run: modegraph repair {folder} (what can be read of it is kept)")
    seal.unlink(missing_ok=True)
    (folder / seal_of(LEDGER)).unlink(missing_ok=True)
    try:
        yield sealing
    except BaseException:
        if sealing.before is not None and (sealing.found_damage or sealing.now() == sealing.before):
            _seal_ledger(folder)
            _write_seal(seal, sealing.before.text)
        raise
    _seal_ledger(folder)
    _write_seal(seal, sealing.now().text)


def _sealed_sums(folder: Path) -> BlockSums | None:
    """What index.sqlite was sealed with; None where the last run did not finish. UserError where a seal of before format 8 tells damage."""
    seal = folder / seal_of(SQLITE_FILE)
    told = BlockSums.read(seal.read_text(errors="replace")) if seal.exists() else None
    if told is None and _undamaged_state(folder, SQLITE_FILE, INDEX_AGAIN) == "intact":
        return BlockSums.of(folder / SQLITE_FILE)
    return told


def _undamaged_state(folder: Path, file: str, remedy: str) -> SealState:
    """The state of a file's seal, UserError when it says damage."""
    state = check_seal(folder, file)
    if state == "damaged":
        raise _damage_error(folder / file, remedy)
    return state


def _damage_error(file: Path, remedy: str) -> UserError:
    return UserError(f"{file}: its bytes are not those of the last run", "the file as it was sealed", remedy)


def has_ledger(folder: Path) -> bool:
    """Whether there is a call ledger, or was one when the index was sealed."""
    return (folder / LEDGER).exists() or (folder / seal_of(LEDGER)).exists()


def check_seal(folder: Path, file: str) -> SealState:
    """Whether a file is as the last finished run left it; "illegible" when the seal itself has a changed byte."""
    seal = folder / seal_of(file)
    if not seal.exists():
        return "damaged" if file == LEDGER and not _readable(folder / file) else "unfinished"
    by_blocks = BlockSums.read(seal.read_text(errors="replace"))
    if by_blocks is not None:
        return "intact" if (folder / file).exists() and BlockSums.of(folder / file) == by_blocks else "damaged"
    lines = seal.read_bytes().split(b"\n")
    if len(lines) != 2 or lines[0] != lines[1]:
        return "illegible"
    return "intact" if has_sum(folder / file, lines[0].decode(errors="replace")) else "damaged"


def set_ledger_aside(folder: Path) -> None:
    """Rename a damaged ledger, so that a new one is begun from its sound rows; earlier ones stay."""
    (folder / seal_of(LEDGER)).unlink(missing_ok=True)
    if not (folder / LEDGER).exists():
        return
    number = 1 + len(damaged_ledgers(folder / LEDGER))
    target = LEDGER + SET_ASIDE + ("" if number == 1 else str(number))
    for suffix in (*_WAL_FILES, ""):
        if (folder / (LEDGER + suffix)).exists():
            (folder / (LEDGER + suffix)).replace(folder / (target + suffix))


def damaged_ledgers(ledger: Path) -> list[Path]:
    """The damaged ledgers that were renamed to make room for this one."""
    found = ledger.parent.glob(glob.escape(ledger.name + SET_ASIDE) + "*")
    return sorted(file for file in found if not file.name.endswith(_WAL_FILES))


def _readable(ledger: Path) -> bool:
    """Whether SQLite finds its way through all of the file; DiskFull when it has no room to look."""
    try:
        with (
            report_full_disk(ledger.parent),
            closing(sqlite3.connect(f"file:{quote(str(ledger))}?mode=ro", uri=True)) as database,
        ):
            (found,) = database.execute("PRAGMA quick_check").fetchone()
            return bool(found == "ok")
    except sqlite3.DatabaseError:
        return False


def _seal_ledger(folder: Path) -> None:
    """Seal the ledger, if there is one, with all that its write-ahead log holds brought into it."""
    if not (folder / LEDGER).exists():
        return
    with closing(sqlite3.connect(folder / LEDGER)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    found = quick_sum(folder / LEDGER)
    _write_seal(folder / seal_of(LEDGER), f"{found}\n{found}")


def _write_seal(seal: Path, text: str) -> None:
    """What a file is sealed with, in a form that tells a changed byte in the seal from one in what it seals."""
    partial = seal.with_name(seal.name + ".partial")
    partial.write_text(text)
    partial.replace(seal)
