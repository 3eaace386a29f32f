"""Checksums of a file by block: one that is written here and there need not be read whole to be sealed again."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import xxhash

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
        made = {block: _sum_of(file, block, BLOCK_BYTES) for block in changed if block < count}
        return BlockSums(file.stat().st_size, tuple((kept | made)[block] for block in range(count)))

    def hold(self, file: Path, blocks: Iterable[int]) -> bool:
        """Whether these blocks, those that there were, are as they were."""
        there = [block for block in blocks if block < len(self.blocks)]
        return all(_sum_of(file, block, self.bytes - block * BLOCK_BYTES) == self.blocks[block] for block in there)

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


def _sum_of(file: Path, block: int, most: int) -> str:
    """The XXH3 of a block, or of the first bytes of it."""
    with file.open("rb") as opened:
        opened.seek(block * BLOCK_BYTES)
        return xxhash.xxh3_128_hexdigest(opened.read(min(most, BLOCK_BYTES)))
