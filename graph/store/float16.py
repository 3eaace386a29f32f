"""Vectors as they are kept, float32 or float16, and what is computed of them: float32.

Legend: R rows, D dimensions, Q columns of a product.
"""

import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graph.types import Floats, Ints

StoredVectors = NDArray[np.float32] | NDArray[np.float16]
PRODUCT_ROWS = 1_024
"""Vectors in float16 that are multiplied at a time: their float32 stay in the processor's cache."""


def as_float32(held: StoredVectors) -> Floats:
    """The same finite numbers as float32: a half's bits with the exponent moved. numpy's own cast takes three times as long.

    >>> as_float32(np.array([1.5, -0.1, 6e-8, 0], np.float16)).tolist()
    [1.5, -0.0999755859375, 5.960464477539063e-08, 0.0]
    """
    if held.dtype == np.float32:
        return np.asarray(held, np.float32)
    bits = np.asarray(np.ascontiguousarray(held).view(np.uint16), np.uint32)
    moved = ((bits & 0x8000) << 16 | (bits & 0x7FFF) << 13).view(np.float32)
    moved *= np.float32(2.0**112)
    return moved.reshape(held.shape)


def batches(held_RD: StoredVectors, rows: int) -> Iterator[Floats]:
    """All vectors as float32, so many at a time, for one who reads them through. Of a file that is memory-mapped no more than that stays in memory."""
    for start in range(0, len(held_RD), rows):
        yield as_float32(held_RD[start : start + rows])
        let_go(held_RD)


def gathered(held_RD: StoredVectors, row_X: Ints, rows: int) -> Floats:
    """The vectors of many rows as float32; of a file that is memory-mapped what so many of them touch stays in memory, no more."""
    found = np.empty((len(row_X), held_RD.shape[1]), np.float32)
    for start in range(0, len(row_X), rows):
        found[start : start + rows] = as_float32(held_RD[row_X[start : start + rows]])
        let_go(held_RD)
    return found


def let_go(mapped: Any) -> None:
    """Give back the memory of an array that is mapped from a file; it is read again when it is asked for. Of another array nothing."""
    while isinstance(mapped, np.ndarray):
        mapped = getattr(mapped, "_mmap", None) or mapped.base
    if isinstance(mapped, mmap.mmap) and hasattr(mapped, "madvise"):
        mapped.madvise(mmap.MADV_DONTNEED)


def product(held_RD: StoredVectors, right: Floats) -> Floats:
    """The products float32[R] or [R, Q] with a vector or a matrix [D, Q], without a float32 copy of all vectors."""
    if held_RD.dtype == np.float32:
        return np.asarray(held_RD @ right)
    found = np.empty((len(held_RD), *right.shape[1:]), np.float32)
    for start in range(0, len(held_RD), PRODUCT_ROWS):
        part = slice(start, start + PRODUCT_ROWS)
        np.matmul(as_float32(held_RD[part]), right, out=found[part])
    return found
