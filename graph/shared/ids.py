"""Content hashes: the external ids of everything in an index, and checksums of files."""

import hashlib
from hashlib import blake2b
from pathlib import Path

BYTES = 16
SHOWN_DIGITS = 8


def content_id(*parts: str) -> str:
    """128-bit hash of the parts, as 32 hexadecimal digits; parts are length-prefixed, so ("a", "bc") ≠ ("ab", "c")."""
    digest = blake2b(digest_size=BYTES)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def shown_id(identity: str) -> str:
    """The first digits of an id, by which a person names it."""
    return identity[:SHOWN_DIGITS]


def checksum(file: Path) -> str:
    """128-bit hash of a file's bytes."""
    with file.open("rb") as data:
        return hashlib.file_digest(data, lambda: blake2b(digest_size=BYTES)).hexdigest()
