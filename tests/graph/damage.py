"""Damage to files: a flipped bit, and a missing end."""

from pathlib import Path


def flipped(data: bytes, place: int) -> bytes:
    """The data with one bit of the byte at `place` flipped."""
    changed = bytearray(data)
    changed[place] ^= 0x10
    return bytes(changed)


def flip(file: Path, place: int | None = None) -> None:
    """Flip a bit of the byte at `place`, or of the middle byte."""
    data = file.read_bytes()
    file.write_bytes(flipped(data, len(data) // 2 if place is None else place))


def cut(file: Path) -> None:
    """Remove the last nine bytes."""
    file.write_bytes(file.read_bytes()[:-9])
