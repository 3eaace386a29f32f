"""A segment: a file of vectors and of the ids that they belong to, named after the checksum of its bytes. It is written once, whole, and
never changed.

Legend: R rows of a segment, D dimensions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from graph.disk.npy import write_array
from graph.shared.errors import UserError
from graph.shared.ids import has_sum, quick_sum
from graph.shared.types import IdBytes
from graph.store.vectors.ann import Ann
from graph.store.vectors.halves import Held

FOLDER, ENDING = "vectors", ".segment"
WRITTEN_ROWS = 8_192
"""Vectors that are gathered at a time to be written."""


@dataclass(frozen=True)
class Segment:
    """Vectors and their ids, in the file of that name; "" while they are in none."""

    vectors_RD: Held
    ids_R: IdBytes
    name: str = ""
    ann: Ann | None = None
    fresh: bool = False
    """Whether no generation has it yet, though it is in a file."""


def open_segment(file: Path) -> Segment:
    """A segment's file, memory-mapped: vectors, then ids, each as numpy saves an array."""
    with file.open("rb") as opened:
        vectors_RD = _map_array(opened)
        return Segment(vectors_RD, _map_array(opened), file.name)


def check_segment(folder: Path, name: str) -> None:
    """UserError when a segment is not as it was written."""
    if not is_sound(folder / FOLDER / name):
        found = f"{folder / FOLDER / name}: not the bytes that were written"
        raise UserError(found, "a sound segment", f"run: modegraph repair {folder}")


def is_sound(file: Path) -> bool:
    """Whether a segment's bytes are those that its name tells."""
    return has_sum(file, file.stem.rpartition("-")[2])


def write_segment(
    folder: Path, field: str, ids_R: IdBytes, vectors_of: Callable[[slice], Held], at_a_time: int = WRITTEN_ROWS
) -> Segment:
    """The vectors of ids as a new segment; so many are held in memory at a time."""
    partial = folder / FOLDER / f"{field}-{uuid4().hex}.partial"
    partial.parent.mkdir(exist_ok=True)
    with partial.open("wb") as opened:
        for start in range(0, max(1, len(ids_R)), at_a_time):
            batch = vectors_of(slice(start, start + at_a_time))
            dtype = batch.dtype.newbyteorder("<")
            if start == 0:
                shape = len(ids_R), batch.shape[1]
                head = {"descr": dtype.str, "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(opened, head)
            opened.write(np.ascontiguousarray(batch, dtype).data)
        write_array(opened, ids_R)
    file = partial.with_name(f"{field}-{quick_sum(partial)}{ENDING}")
    partial.replace(file)
    return open_segment(file)


def _map_array(opened: Any) -> Any:
    """The array that begins where a file is read, mapped; the file is read on after it."""
    np.lib.format.read_magic(opened)
    shape, _, dtype = np.lib.format.read_array_header_1_0(opened)
    start = opened.tell()
    if 0 in shape:
        return np.zeros(shape, dtype)
    array = np.memmap(opened, dtype, "r", start, shape)
    opened.seek(start + array.nbytes)
    return np.asarray(array)
