"""The seal of index.sqlite: its checksums by block, as the last finished run left it.

A missing seal means that a run did not finish (`modegraph resume` does); a seal that does not match means damage. A file that is written in a
few places need not be read whole to be sealed again."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import xxhash

from graph.errors import UserError
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


SEAL = SQLITE_FILE + ".seal"
INDEX_AGAIN = "index the documents into a new folder: modegraph index SRC --out NEW"
SealState = Literal["intact", "unfinished", "damaged", "illegible"]


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
            raise _damage_error(self._file)
        self._written |= blocks

    def now(self) -> BlockSums:
        """The checksums of the file as it is now."""
        return BlockSums.of(self._file) if self.before is None else self.before.again(self._file, self._written)


@contextmanager
def unsealed(folder: Path) -> Iterator[Sealing]:
    """Break the seal while an index is written; seal it again at the end, or when nothing was changed after all.

    UserError when index.sqlite, where it is written, is not as the last run left it: a new seal would hide that.
    """
    seal = folder / SEAL
    sealing = Sealing(folder, _sealed_sums(folder))
    seal.unlink(missing_ok=True)
    try:
        yield sealing
    except BaseException:
        if sealing.before is not None and (sealing.found_damage or sealing.now() == sealing.before):
            _write_seal(seal, sealing.before.text)
        raise
    _write_seal(seal, sealing.now().text)


def _sealed_sums(folder: Path) -> BlockSums | None:
    """What index.sqlite was sealed with; None where the last run did not finish, or the seal cannot be read."""
    seal = folder / SEAL
    return BlockSums.read(seal.read_text(errors="replace")) if seal.exists() else None


def check_seal(folder: Path) -> SealState:
    """Whether index.sqlite is as the last finished run left it; "illegible" when the seal itself has a changed byte."""
    if not (folder / SEAL).exists():
        return "unfinished"
    told = _sealed_sums(folder)
    if told is None:
        return "illegible"
    return "intact" if BlockSums.of(folder / SQLITE_FILE) == told else "damaged"


def check_undamaged(folder: Path) -> None:
    """UserError when index.sqlite is not as the last finished run left it."""
    if check_seal(folder) == "damaged":
        raise _damage_error(folder / SQLITE_FILE)


def _damage_error(file: Path) -> UserError:
    return UserError(f"{file}: its bytes are not those of the last run", "the file as it was sealed", INDEX_AGAIN)


def _write_seal(seal: Path, text: str) -> None:
    partial = seal.with_name(seal.name + ".partial")
    partial.write_text(text)
    partial.replace(seal)
