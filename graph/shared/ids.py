"""Content hashes: the ids of an index's contents other than documents, checksums of files, and quick sums that detect damage to an index."""

import hashlib
from hashlib import blake2b
from pathlib import Path

import xxhash

BYTES = 16
ID_BYTES = f"S{2 * BYTES}"
"""The dtype of ids in arrays."""
_DIGITS = frozenset("0123456789abcdef")
SHOWN_DIGITS = 8


def content_id(*parts: str) -> str:
    """128-bit hash of the parts, as 32 hexadecimal digits; parts are length-prefixed, so ("a", "bc") ≠ ("ab", "c")."""
    digest = blake2b(digest_size=BYTES)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def is_id(text: str) -> bool:
    """Whether a string has the form of an id.

    >>> is_id("0123456789abcdef" * 2), is_id("0123456789ABCDEF" * 2), is_id("é" * 32)
    (True, False, False)
    """
    return len(text) == 2 * BYTES and set(text) <= _DIGITS


def shown_id(identity: str) -> str:
    """The first digits of an id, as shown to people."""
    return identity[:SHOWN_DIGITS]


def checksum(file: Path) -> str:
    """128-bit hash of a file's bytes."""
    with file.open("rb") as data:
        return hashlib.file_digest(data, lambda: blake2b(digest_size=BYTES)).hexdigest()


def quick_sum(file: Path) -> str:
    """128-bit XXH3 of a file's bytes: detects damage at memory speed, but not deliberate forgery."""
    with file.open("rb") as data:
        return "x" + hashlib.file_digest(data, xxhash.xxh3_128).hexdigest()


def quick_sum_of(data: bytes | memoryview) -> str:
    """The `quick_sum` of a file with these bytes."""
    return "x" + xxhash.xxh3_128_hexdigest(data)


def has_sum(file: Path, expected: str) -> bool:
    """Whether a file exists and has this `quick_sum`."""
    return file.exists() and quick_sum(file) == expected


def is_intact(file: Path) -> bool:
    """Whether a file exists and has the `quick_sum` with which its name ends."""
    return has_sum(file, file.stem.rpartition("-")[2])
