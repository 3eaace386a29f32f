"""Edits of sparse blocks: remaining entries move with their rows and columns, in order, and new entries are inserted between them.

Unless many entries are new, nothing is sorted again: an edit costs one copy.
Legend: L previous rows, C previous columns, N current rows, R requested rows, X entries, K values.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graph.store.columns.row_map import NO_ROWS, put_between
from graph.types import Floats, Ints

REMAINING_PER_NEW = 8
"""If there are at most this many remaining entries per new one, all entries are sorted together."""


@dataclass(frozen=True)
class Entries:
    """Entries of a block in any order; entries of the same cell are summed."""

    row_X: Ints
    column_X: Ints
    value_X: Floats

    @classmethod
    def ones(cls, row_X: Ints, column_X: Ints) -> "Entries":
        """Entries of value 1."""
        return cls(row_X, column_X, np.ones(len(row_X), np.float32))

    @classmethod
    def none(cls) -> "Entries":
        """No entries."""
        return cls.ones(NO_ROWS, NO_ROWS)

    def summed(self, columns: int) -> "Entries":
        """One entry per cell, in order, for a block of `columns` columns."""
        cells, cell_X = np.unique(self.row_X * columns + self.column_X, return_inverse=True)
        values = np.bincount(cell_X, self.value_X, len(cells)).astype(np.float32)
        return Entries(cells // max(columns, 1), cells % max(columns, 1), values)

    def followed_by(self, more: "Entries") -> "Entries":
        """These entries, then `more`."""
        both = zip(vars(self).values(), vars(more).values(), strict=True)
        return Entries(*(np.concatenate(pair) for pair in both))


def edit_block(
    block: sp.csr_array,
    row_L: Ints,
    column_C: Ints,
    shape: tuple[int, int],
    added: Entries,
    dropped_X: NDArray[np.bool_] | None = None,
) -> sp.csr_array:
    """The block with its rows and columns at their current positions (−1: deleted), without the entries marked in `dropped_X`, and with the entries `added`.

    Requires that remaining rows and columns keep their order, and that no remaining entry is in the cell of an added one.
    """
    count_L, value_X = np.diff(block.indptr), block.data
    index_X, deleted_X = _current_columns(block.indices, column_C)
    dropped = [mask_X for mask_X in (dropped_X, deleted_X) if mask_X is not None]
    if (row_L < 0).any():
        dropped.append(np.repeat(row_L < 0, count_L))
    if dropped:
        stays_X = ~np.logical_or.reduce(dropped)
        count_L = count_L - entries_by_row(block, ~stays_X)
        index_X, value_X = index_X[stays_X], value_X[stays_X]
    start_N = np.zeros(shape[0] + 1, np.int64)
    start_N[1:][row_L[row_L >= 0]] = count_L[row_L >= 0]
    np.cumsum(start_N, out=start_N)
    new = sp.csr_array(sp.coo_array((added.value_X, (added.row_X, added.column_X)), shape=shape))
    if REMAINING_PER_NEW * new.nnz >= len(index_X):
        return _sort_all_entries(start_N, index_X, value_X, new)
    new_row_X = np.repeat(np.arange(shape[0]), np.diff(new.indptr))
    before = first_not_below(index_X, start_N[new_row_X], start_N[new_row_X + 1], new.indices)
    start_N += new.indptr
    inserted = put_between(value_X, before, new.data), put_between(index_X, before, new.indices)
    large = start_N[-1] > np.iinfo(np.int32).max
    return sp.csr_array((*inserted, start_N.astype(np.int64 if large else index_X.dtype)), shape=shape)


def narrow(block: sp.csr_array) -> sp.csr_array:
    """The block with indices of four bytes if they suffice, as on disk."""
    if block.indices.dtype == np.int32 or max(*block.shape, block.nnz) > np.iinfo(np.int32).max:
        return block
    indices = block.indices.astype(np.int32), block.indptr.astype(np.int32)
    return sp.csr_array((block.data, *indices), shape=block.shape)


def cells_of(block: sp.csr_array, rows_R: Ints, columns_C: Ints) -> Floats:
    """The values in some columns of some rows, found by bisection: float32[R, C]."""
    first_X = np.repeat(block.indptr[rows_R].astype(np.int64), len(columns_C))
    end_X = np.repeat(block.indptr[rows_R + 1].astype(np.int64), len(columns_C))
    column_X = np.tile(columns_C, len(rows_R))
    position_X = first_not_below(block.indices, first_X, end_X, column_X)
    value_X = np.zeros(len(position_X), np.float32)
    inside = np.flatnonzero(position_X < end_X)
    matches = inside[block.indices[position_X[inside]] == column_X[inside]]
    value_X[matches] = block.data[position_X[matches]]
    return value_X.reshape(len(rows_R), len(columns_C))


def entries_by_row(block: sp.csr_array, chosen_X: NDArray[np.bool_]) -> Ints:
    """The number of chosen entries in each row; efficient if few are chosen."""
    rows = np.searchsorted(block.indptr, np.flatnonzero(chosen_X), "right") - 1
    return np.bincount(rows, minlength=block.shape[0])


def first_not_below(sorted_X: Any, first_K: Ints, end_K: Ints, value_K: Ints) -> Ints:
    """For each value, its `numpy.searchsorted` position in the sorted range of `sorted_X` from `first_K` to `end_K`, found by bisection: [K]."""
    first_K, end_K = first_K.copy(), end_K.copy()
    while len(open_K := np.flatnonzero(first_K < end_K)):
        middle = (first_K[open_K] + end_K[open_K]) // 2
        below = sorted_X[middle] < value_K[open_K]
        first_K[open_K[below]], end_K[open_K[~below]] = middle[below] + 1, middle[~below]
    return first_K


def _current_columns(index_X: NDArray[Any], column_C: Ints) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """The current columns of entries, and a mask of the entries in deleted columns (None: there are none)."""
    if np.array_equal(column_C, np.arange(len(column_C))):
        return index_X, None
    moved_X = column_C.astype(index_X.dtype)[index_X]
    return moved_X, moved_X < 0 if (column_C < 0).any() else None


def _sort_all_entries(start_N: Ints, index_X: NDArray[Any], value_X: Floats, new: sp.csr_array) -> sp.csr_array:
    """The remaining entries (row by row, as `start_N` delimits them) and the new entries as one block."""
    both = new.tocoo()
    row_X = np.concatenate([np.repeat(np.arange(len(start_N) - 1), np.diff(start_N)), both.coords[0]])
    column_X = np.concatenate([index_X, both.coords[1]])
    values_X = np.concatenate([value_X, both.data]).astype(np.float32, copy=False)
    return sp.csr_array(sp.coo_array((values_X, (row_X, column_X)), shape=new.shape))
