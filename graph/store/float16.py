"""Vectors stored as float32 or float16; computations on them return float32. Legend: R rows, X requested rows, D dimensions, Q columns of a product."""

import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graph.types import Floats, Ints

StoredVectors = NDArray[np.float32] | NDArray[np.float16]
PRODUCT_ROWS = 1_024
"""The number of float16 vectors multiplied at a time: converted to float32, they fit into the processor's cache."""


def as_float32(stored: StoredVectors) -> Floats:
    """The stored numbers, which must be finite, as float32; float16 is converted by shifting its bits, three times as fast as numpy's cast.

    >>> as_float32(np.array([1.5, -0.1, 6e-8, 0], np.float16)).tolist()
    [1.5, -0.0999755859375, 5.960464477539063e-08, 0.0]
    """
    if stored.dtype == np.float32:
        return np.asarray(stored, np.float32)
    bits = np.asarray(np.ascontiguousarray(stored).view(np.uint16), np.uint32)
    shifted = ((bits & 0x8000) << 16 | (bits & 0x7FFF) << 13).view(np.float32)
    shifted *= np.float32(2.0**112)
    return shifted.reshape(stored.shape)


def batches(stored_RD: StoredVectors, rows: int) -> Iterator[Floats]:
    """All vectors as float32, in batches of `rows`. Of a memory-mapped file, only one batch stays in memory."""
    for start in range(0, len(stored_RD), rows):
        yield as_float32(stored_RD[start : start + rows])
        release_memory(stored_RD)


def gather_rows(stored_RD: StoredVectors, row_X: Ints, rows: int) -> Floats:
    """The vectors of many rows as float32. Of a memory-mapped file, only the pages of `rows` vectors at a time stay in memory."""
    result = np.empty((len(row_X), stored_RD.shape[1]), np.float32)
    for start in range(0, len(row_X), rows):
        result[start : start + rows] = as_float32(stored_RD[row_X[start : start + rows]])
        release_memory(stored_RD)
    return result


def release_memory(mapped: Any) -> None:
    """Release the memory of an array mapped from a file; its pages are read again when accessed. Does nothing for other arrays."""
    while isinstance(mapped, np.ndarray):
        mapped = getattr(mapped, "_mmap", None) or mapped.base
    if isinstance(mapped, mmap.mmap):
        mapped.madvise(mmap.MADV_DONTNEED)


def product(stored_RD: StoredVectors, right: Floats) -> Floats:
    """The products, float32[R] or [R, Q], with a vector [D] or a matrix [D, Q], without a float32 copy of all vectors."""
    if stored_RD.dtype == np.float32:
        return np.asarray(stored_RD @ right)
    result = np.empty((len(stored_RD), *right.shape[1:]), np.float32)
    for start in range(0, len(stored_RD), PRODUCT_ROWS):
        part = slice(start, start + PRODUCT_ROWS)
        np.matmul(as_float32(stored_RD[part]), right, out=result[part])
    return result
