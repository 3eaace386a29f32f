"""Columns of the last generation in which a little has changed: what changed is kept beside them, and put in where somebody needs all of it.

So an edit neither copies nor writes what it leaves as it is (graph/store/columns/patch.py). Legend: L rows of the last generation, N rows now, C and D its columns
then and now, R rows that are asked for, X entries.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graph.shared.types import IdBytes, Ints
from graph.store.columns.blocks import Entries, edited, entries_by_row
from graph.store.columns.merge import Merge
from graph.store.columns.strings import Ids, Strings, id_bytes, rows_in_order


class MovedStrings(Strings):
    """A column whose rows have moved, with new ones between. `data` and `starts` are put together when they are asked for."""

    base: Strings
    merge: Merge
    new: Strings
    """The texts of the new rows, in order."""

    def __init__(self, base: Strings, merge: Merge, new: Strings) -> None:
        vars(self).update(base=base, merge=merge, new=new)

    @cached_property
    def whole(self) -> Strings:
        """All texts end to end."""
        return self.base.splice(self.merge.last_N, self.new)

    @cached_property
    def data(self) -> NDArray[np.uint8]:
        return self.whole.data

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        return self.whole.starts

    def __len__(self) -> int:
        return len(self.merge.last_N)

    def __getitem__(self, row: int) -> str:
        last = int(self.merge.last_N[row])
        return self.base[last] if last >= 0 else self.new[int(np.searchsorted(self.merge.new_K, row))]

    def rows_with(self, sought: Callable[[NDArray[np.uint8]], NDArray[np.bool_]]) -> Ints:
        moved = self.merge.place_L[self.base.rows_with(sought)]
        return np.sort(np.concatenate([moved[moved >= 0], self.merge.new_K[self.new.rows_with(sought)]]))

    def moved(self, merge: Merge, new: Strings) -> Strings:
        total = self.merge.then(merge)
        last_K = merge.last_N[total.new_K]
        own_K = np.where(last_K >= 0, np.searchsorted(self.merge.new_K, last_K), -1)
        return _unless_all_new(self.base, total, self.new.splice(own_K, new))


def moved_strings(column: Strings, merge: Merge, new: Strings) -> Strings:
    """The column with its rows where they are now, and new ones between."""
    return column.moved(merge, new) if isinstance(column, MovedStrings) else _unless_all_new(column, merge, new)


def ids_below(column: Strings, ids: IdBytes) -> Ints:
    """How many ids of a column that is in order are less than each of these."""
    if not isinstance(column, MovedStrings):
        return np.searchsorted(id_bytes(column), ids)
    in_base = ids_below(column.base, ids)
    kept = in_base - np.searchsorted(column.merge.gone_G, in_base)
    return kept + np.searchsorted(id_bytes(column.new), ids)


def find_ids(column: Strings, ids: Ids) -> Ints:
    """The row of each of these ids in a column that is in order, −1 where it is not there."""
    if not isinstance(column, MovedStrings):
        return rows_in_order(column, ids)
    in_base, in_new = rows_in_order(column.base, ids), rows_in_order(column.new, ids)
    of_base = np.where(in_base >= 0, column.merge.place_L[in_base], -1) if len(column.merge.place_L) else in_base
    return np.where(in_new >= 0, column.merge.new_K[in_new], of_base) if len(column.merge.new_K) else of_base


def _unless_all_new(column: Strings, merge: Merge, new: Strings) -> Strings:
    return MovedStrings(column, merge, new) if len(new) < len(merge.last_N) else new


@dataclass(frozen=True)
class MovedBlock:
    """A block whose rows and columns have moved: without the entries of rows that are `replaced` (and, `both_ways`, of columns of the same
    number), and with entries added.
    """

    base: sp.csr_array
    rows: Merge
    columns: Merge
    replaced_L: NDArray[np.bool_]
    both_ways: bool
    added: Entries

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows.last_N), len(self.columns.last_N)

    @cached_property
    def whole(self) -> sp.csr_array:
        """All entries as one block."""
        row_L, gone_X = self.rows.place_L, None
        if self.both_ways:
            gone_X = self.replaced_L[self.base.indices] | np.repeat(self.replaced_L, np.diff(self.base.indptr))
        else:
            row_L = np.where(self.replaced_L, -1, row_L)
        return edited(self.base, row_L, self.columns.place_L, self.shape, self.added, gone_X)

    def moved(
        self, rows: Merge, columns: Merge, added: Entries, replaced_N: NDArray[np.bool_], both_ways: bool
    ) -> "MovedBlock":
        """The same after another edit; `replaced_N` are rows as they are now."""
        row_X, column_X = rows.place_L[self.added.row_X], columns.place_L[self.added.column_X]
        stays = (row_X >= 0) & (column_X >= 0) & ~np.append(replaced_N, False)[row_X]
        if both_ways:
            stays &= ~np.append(replaced_N, False)[column_X]
        kept = Entries(row_X[stays], column_X[stays], self.added.value_X[stays])
        all_rows = self.rows.then(rows)
        replaced_L = self.replaced_L | np.append(replaced_N, False)[all_rows.place_L]
        return MovedBlock(self.base, all_rows, self.columns.then(columns), replaced_L, both_ways, kept.and_(added))

    def taken(self, rows_R: Ints) -> sp.csr_array:
        """The entries of some rows: CSR[R, D]."""
        last_R = self.rows.last_N[rows_R]
        from_base = (last_R >= 0) & ~np.append(self.replaced_L, False)[last_R]
        part = self.base[last_R[from_base], :]
        row_X = np.repeat(np.flatnonzero(from_base), np.diff(part.indptr))
        column_X = self.columns.place_L[part.indices]
        stays = column_X >= 0
        if self.both_ways:
            stays &= ~self.replaced_L[part.indices]
        place_X, added = _among(rows_R, self.added.row_X)
        both = (
            (part.data[stays], self.added.value_X[added]),
            (row_X[stays], place_X),
            (column_X[stays], self.added.column_X[added]),
        )
        values, rows, columns = (np.concatenate(each) for each in both)
        shape = len(rows_R), self.shape[1]
        return sp.csr_array(sp.coo_array((values.astype(np.float32, copy=False), (rows, columns)), shape=shape))

    def entries_by_row(self) -> Ints:
        """How many entries each row has: int64[N]."""
        count_L, gone_C = np.diff(self.base.indptr).astype(np.int64), self._gone_C
        if gone_C.any():
            count_L -= entries_by_row(self.base, gone_C[self.base.indices])
        count_L[self.replaced_L] = 0
        count_N = self.rows.numbers(count_L, np.zeros(len(self.rows.new_K), np.int64))
        return count_N + np.bincount(self.added.row_X, minlength=len(count_N))

    def sums_by_column(self) -> NDArray[np.float64]:
        """What the entries of each column add up to: float64[D]."""
        gone_L, value_X = self.replaced_L | (self.rows.place_L < 0), self.base.data
        if gone_L.any():
            value_X = np.where(np.repeat(gone_L, np.diff(self.base.indptr)), 0, value_X)
        sum_C = np.bincount(self.base.indices, weights=value_X, minlength=self.base.shape[1])
        of_added_D = np.bincount(self.added.column_X, self.added.value_X.astype(np.float64), self.shape[1])
        sum_D = of_added_D.astype(np.float64)  # Whole numbers where nothing was added.
        stays_C = ~self._gone_C
        sum_D[self.columns.place_L[stays_C]] += sum_C[stays_C]
        return sum_D

    @property
    def _gone_C(self) -> NDArray[np.bool_]:
        """The columns that have none of their entries any more but those that were added."""
        gone_C = self.columns.place_L < 0
        return gone_C | self.replaced_L if self.both_ways else gone_C


Block: TypeAlias = sp.csr_array | MovedBlock


def moved_block(
    block: Block,
    rows: Merge,
    columns: Merge,
    added: Entries,
    replaced_N: NDArray[np.bool_] | None = None,
    both_ways: bool = False,
) -> Block:
    """The block with its rows and columns where they are now, without the entries of `replaced_N`, and with those added; a place that is given
    twice has the sum. Put together at once where more is new than is left.
    """
    if replaced_N is None:
        replaced_N = np.zeros(len(rows.last_N), bool)
    if isinstance(block, MovedBlock):
        return block.moved(rows, columns, added.summed(len(columns.last_N)), replaced_N, both_ways)
    replaced_L = np.append(replaced_N, False)[rows.place_L]
    moved = MovedBlock(block, rows, columns, replaced_L, both_ways, added)
    if len(added.row_X) >= block.nnz:
        return moved.whole
    return replace(moved, added=added.summed(len(columns.last_N)))


def whole(column: Any) -> Any:
    """A column with all that has changed put into it."""
    return column.whole if isinstance(column, MovedStrings | MovedBlock) else column


def taken(block: Block, rows_R: Ints) -> sp.csr_array:
    """The entries of some rows: CSR[R, D]."""
    return block.taken(rows_R) if isinstance(block, MovedBlock) else sp.csr_array(block[rows_R, :])


def entry_counts(block: Block) -> Ints:
    """How many entries each row has: int64[N]."""
    return block.entries_by_row() if isinstance(block, MovedBlock) else np.diff(block.indptr)


def column_sums(block: Block) -> NDArray[np.float64]:
    """What the entries of each column add up to: float64[D]."""
    if isinstance(block, MovedBlock):
        return block.sums_by_column()
    return np.asarray(np.bincount(block.indices, block.data, block.shape[1]), np.float64)


def _among(rows_R: Ints, row_X: Ints) -> tuple[Ints, Ints]:
    """The entries that are in one of these rows: the place of the row among them, and the entry."""
    order = np.argsort(row_X, kind="stable")
    first_R, end_R = (np.searchsorted(row_X[order], rows_R, side) for side in ("left", "right"))
    count_R = end_R - first_R
    place_X = np.repeat(np.arange(len(rows_R)), count_R)
    return place_X, order[
        np.arange(count_R.sum()) - np.repeat(np.cumsum(count_R) - count_R, count_R) + first_R[place_X]
    ]
