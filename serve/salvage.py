"""Recovers the rows of a damaged ledger by scanning for their bytes, so that damage elsewhere in the file does not matter.

SQLite finds a row through its header, its schema and the pages above it, and gives up where one of them is damaged. A row is a
record (sqlite.org/fileformat2.html §2.1: a header of sizes, then the values); a record too long for its page continues in a chain
of overflow pages (§1.6). Keys of calls are 64 characters long, which makes the start of a record recognisable. The caller checks
each row by its hash.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import accumulate, pairwise
from pathlib import Path

from graph.store.seal import CallRow

PAGE_BYTES = 4096
_WAL_HEADER_BYTES, _FRAME_HEADER_BYTES = 32, 24
_MAX_LOCAL = (PAGE_BYTES - 12) * 64 // 255 - 23
"""A record of up to this many bytes is stored on one page; of a longer one, at least `_MIN_LOCAL` bytes are."""
_MIN_LOCAL = (PAGE_BYTES - 12) * 32 // 255 - 23
_START = re.compile(rb"(?=[\x08-\x0f]\x81\x0d)")
"""The length of a record's header, and the type of a text of 64 bytes: 13 + 2 · 64 = 141 as a varint."""
_NULL = 0
_INTEGER_BYTES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8, 8: 0, 9: 0}


def salvage_rows(file: Path) -> Iterator[CallRow]:
    """Everything that parses as a row in a ledger and its write-ahead log, in file order; a row may occur more than once."""
    pages = _pages(file)
    frames = _frames(file.with_name(file.name + "-wal"))
    latest = pages | dict(frames)
    for page in (*pages.values(), *(frame for _, frame in frames)):
        for start in _START.finditer(page):
            row = _row_at(page, start.start(), latest)
            if row is not None:
                yield row


def _pages(file: Path) -> dict[int, bytes]:
    """Pages by number, from 1; the last may be cut short."""
    data = file.read_bytes()
    return {1 + at // PAGE_BYTES: data[at : at + PAGE_BYTES] for at in range(0, len(data), PAGE_BYTES)}


def _frames(log: Path) -> list[tuple[int, bytes]]:
    """Numbers and pages of a write-ahead log (§4.1) in order; none where there is no log."""
    data = log.read_bytes() if log.exists() else b""
    frames = range(_WAL_HEADER_BYTES, len(data), _FRAME_HEADER_BYTES + PAGE_BYTES)
    starts = [(frame, frame + _FRAME_HEADER_BYTES) for frame in frames]
    return [(int.from_bytes(data[frame : frame + 4], "big"), data[at : at + PAGE_BYTES]) for frame, at in starts]


def _row_at(page: bytes, start: int, pages: Mapping[int, bytes]) -> CallRow | None:
    """The row whose record starts at `start`, or None where that is no row's header or bytes are missing."""
    position, end = start + 1, start + page[start]
    kinds: list[int] = []
    while position < end:
        kind, position = _varint(page, position)
        kinds.append(kind)
    kinds += [_NULL] * (len(kinds) == 6)  # Written before the last column was added.
    has_time = kinds[-1:] != [_NULL]
    sizes = [_INTEGER_BYTES.get(kind, (kind - 13) // 2 if kind % 2 else -1) for kind in kinds[: 6 + has_time]]
    if [kind in _INTEGER_BYTES for kind in kinds] != [False, False, False, True, True, False, has_time] or min(
        sizes
    ) < 0:
        return None
    record = _record(page, start, page[start] + sum(sizes), pages)
    if record is None:
        return None
    values = [record[left:right] for left, right in pairwise(accumulate(sizes, initial=page[start]))]
    key, model, text, prompt, completion, proof, *microseconds = values
    return (
        _text(key),
        _text(model),
        _text(text),
        _integer(kinds[3], prompt),
        _integer(kinds[4], completion),
        _text(proof),
        _integer(kinds[6], microseconds[0]) if microseconds else None,
    )


def _record(page: bytes, start: int, length: int, pages: Mapping[int, bytes]) -> bytes | None:
    """`length` bytes from `start`, including those on overflow pages; None where the chain breaks."""
    if length > PAGE_BYTES * len(pages):
        return None
    local = length if length <= _MAX_LOCAL else _MIN_LOCAL + (length - _MIN_LOCAL) % (PAGE_BYTES - 4)
    local = local if local <= _MAX_LOCAL else _MIN_LOCAL
    record = page[start : start + local]
    following = page[start + local : start + local + 4]
    while len(record) < length:
        overflow = pages.get(int.from_bytes(following, "big"), b"")
        if len(overflow) <= 4:
            return None
        record += overflow[4 : 4 + length - len(record)]
        following = overflow[:4]
    return record


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _integer(kind: int, data: bytes) -> int:
    """An integer of a record; types 8 and 9 are the constants 0 and 1."""
    return kind - 8 if not data else int.from_bytes(data, "big", signed=True)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A big-endian varint with seven bits per byte (§1.6), and the position after it."""
    value = 0
    for byte in data[position : position + 8]:
        value, position = value << 7 | byte & 0x7F, position + 1
        if byte < 0x80:
            return value, position
    return value, position + 1
