"""The seal of index.sqlite: the checksum of its bytes as the last finished run left them.

A missing seal means that a run did not finish (`modegraph resume` does); a seal that does not match means damage.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from graph.arrays import checksum
from graph.store import FILE

SEAL = FILE + ".seal"


@contextmanager
def unsealed(folder: Path) -> Iterator[None]:
    """Break the seal while index.sqlite is written; seal it again at the end, or when nothing was changed after all."""
    seal = folder / SEAL
    before = checksum(folder / FILE) if seal.exists() and check_seal(folder) == "intact" else None
    seal.unlink(missing_ok=True)
    try:
        yield
    except BaseException:
        if before is not None and checksum(folder / FILE) == before:
            _write(seal, before)
        raise
    _write(seal, checksum(folder / FILE))


def check_seal(folder: Path) -> Literal["intact", "unfinished", "damaged", "illegible"]:
    """Whether index.sqlite is as the last finished run left it; "illegible" when the seal itself has a changed byte."""
    seal = folder / SEAL
    if not seal.exists():
        return "unfinished"
    lines = seal.read_bytes().split(b"\n")
    if len(lines) != 2 or lines[0] != lines[1]:
        return "illegible"
    return "intact" if checksum(folder / FILE).encode() == lines[0] else "damaged"


def _write(seal: Path, found: str) -> None:
    """The checksum twice, so that a changed byte in the seal is told from one in what it seals."""
    partial = seal.with_name(SEAL + ".partial")
    partial.write_text(f"{found}\n{found}")
    partial.replace(seal)
