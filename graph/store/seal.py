"""The seal of index.sqlite: its checksums by block, as of the last finished run.

A missing seal means that a run did not finish (`modegraph resume` finishes it); a seal that does not match means damage. After a few writes
to the file, only the changed blocks are read to seal it again."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from sqlite3 import DatabaseError
from typing import Literal

import xxhash

from graph.errors import DamagedFile
from graph.shared.jsonl import write_text
from graph.store.sqlite import SQLITE_FILE, damage_error

BLOCK_BYTES = 1 << 20
_HEAD = "XXH3 by blocks of"


@dataclass(frozen=True)
class BlockSums:
    """The XXH3 of every block of a file; the last block may be shorter."""

    bytes: int
    blocks: tuple[str, ...]

    @classmethod
    def of(cls, file: Path) -> "BlockSums":
        """The current checksums of a file."""
        return cls(0, ()).updated(file, ())

    def updated(self, file: Path, written_blocks: Iterable[int]) -> "BlockSums":
        """The current checksums of the file, assuming that only `written_blocks` have changed and, if the size has, the block at the end and later ones."""
        size = file.stat().st_size
        count = -(-size // BLOCK_BYTES)
        same = len(self.blocks) if size == self.bytes else max(0, min(len(self.blocks), count) - 1)
        changed = {*written_blocks, *range(same, count)}
        old = dict(enumerate(self.blocks[:count]))
        new = {block: _block_sum(file, block, BLOCK_BYTES) for block in changed if block < count}
        return BlockSums(size, tuple((old | new)[block] for block in range(count)))

    def match(self, file: Path, blocks: Iterable[int]) -> bool:
        """Whether all of these blocks that have a checksum are unchanged."""
        known = [block for block in blocks if block < len(self.blocks)]
        return all(_block_sum(file, block, self.bytes - block * BLOCK_BYTES) == self.blocks[block] for block in known)

    @property
    def text(self) -> str:
        """The content of the seal: all checksums, and a checksum of this list."""
        body = "\n".join([f"{_HEAD} {BLOCK_BYTES} bytes, {self.bytes} in all", *self.blocks])
        return f"{body}\n{xxhash.xxh3_128_hexdigest(body.encode())}"

    @classmethod
    def read(cls, text: str) -> "BlockSums | None":
        """The checksums in the text of a seal; None if it has the wrong form or has changed."""
        body, _, checksum = text.rpartition("\n")
        if not body.startswith(_HEAD) or xxhash.xxh3_128_hexdigest(body.encode()) != checksum:
            return None
        head, *blocks = body.split("\n")
        return cls(int(head.split()[-3]), tuple(blocks))


def _block_sum(file: Path, block: int, max_bytes: int) -> str:
    """The XXH3 of a block, or of its first `max_bytes` bytes."""
    with file.open("rb") as opened:
        opened.seek(block * BLOCK_BYTES)
        return xxhash.xxh3_128_hexdigest(opened.read(min(max_bytes, BLOCK_BYTES)))


SEAL = SQLITE_FILE + ".seal"
SealState = Literal["intact", "unfinished", "damaged", "illegible"]


class Sealing:
    """Records which pages of index.sqlite a writer is about to write, if the file had a readable seal."""

    def __init__(self, folder: Path, before: BlockSums | None) -> None:
        self._file, self.before, self.written_blocks = folder / SQLITE_FILE, before, set[int]()
        self.found_damage = False

    def check_and_record(self, pages: Iterable[int], page_bytes: int) -> None:
        """Record pages (numbered from 1) before they are written. DamagedFile if their blocks have changed since the last run."""
        if self.before is None:
            return
        blocks = {(page - 1) * page_bytes // BLOCK_BYTES for page in pages} - self.written_blocks
        if not self.before.match(self._file, blocks):
            self.found_damage = True
            raise damage_error(self._file)
        self.written_blocks |= blocks

    def current_sums(self) -> BlockSums:
        """The current checksums of the file."""
        return (self.before or BlockSums(0, ())).updated(self._file, self.written_blocks)


@contextmanager
def renew_seal(folder: Path) -> Iterator[Sealing]:
    """Remove the seal while the `with` block writes to an index, and seal the index again at the end. After an error, restore the old seal if nothing was
    written or damage was found: `modegraph resume` must not seal damaged blocks.

    DamagedFile when a block of index.sqlite that is about to be written has changed since the last run, because a new seal would hide the damage.
    """
    seal = folder / SEAL
    sealing = Sealing(folder, _sealed_sums(folder))
    seal.unlink(missing_ok=True)
    try:
        yield sealing
    except BaseException as problem:
        unreadable = isinstance(problem, DamagedFile) and isinstance(problem.__cause__, DatabaseError)
        before, damaged = sealing.before, sealing.found_damage or unreadable
        if before is not None and (damaged or before.match(folder / SQLITE_FILE, sealing.written_blocks)):
            write_text(seal, before.text)
        raise
    write_text(seal, sealing.current_sums().text)


def _sealed_sums(folder: Path) -> BlockSums | None:
    """The checksums in the seal; None if the last run did not finish or the seal is damaged."""
    seal = folder / SEAL
    return BlockSums.read(seal.read_text(errors="replace")) if seal.exists() else None


def check_seal(folder: Path) -> SealState:
    """Compare index.sqlite with its seal: "intact" if unchanged since the last finished run, else "damaged"; "unfinished" without a seal,
    "illegible" if the seal itself has changed.
    """
    if not (folder / SEAL).exists():
        return "unfinished"
    sealed = _sealed_sums(folder)
    if sealed is None:
        return "illegible"
    return "intact" if BlockSums.of(folder / SQLITE_FILE) == sealed else "damaged"


def check_undamaged(folder: Path) -> None:
    """DamagedFile when index.sqlite does not match its seal; a missing or illegible seal is not an error."""
    if check_seal(folder) == "damaged":
        raise damage_error(folder / SQLITE_FILE)
