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

from graph.shared.types import Floats, IdBytes, Ints
from graph.store.columns.blocks import Entries, cells_of, edited
from graph.store.columns.merge import NO_ROWS, Merge, there
from graph.store.columns.numbers import MovedNumbers
from graph.store.columns.strings import Ids, Strings, id_bytes, rows_in_order

FEW_OF = 8
"""Texts are taken one by one where they are fewer than one of so many."""


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
        return len(self.merge)

    def __getitem__(self, row: int) -> str:
        last, new = self.merge.whence(row)
        return self.new[new] if last < 0 else self.base[last]

    def take(self, rows: NDArray[np.int64]) -> Strings:
        few = FEW_OF * len(rows) < len(self)
        return Strings.of(self[int(row)] for row in rows) if few else super().take(rows)

    def rows_where(self, chosen: Callable[[Strings], Ints]) -> Ints:
        moved = self.merge.places(chosen(self.base))
        return np.sort(np.concatenate([there(moved), self.merge.new_K[chosen(self.new)]]))

    def moved(self, merge: Merge, new: Strings) -> Strings:
        total = self.merge.then(merge)
        last_K = merge.lasts(total.new_K)
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


def find_ids(column: Strings, ids: Ids, find: Callable[[Ids, Ids], Ints] = rows_in_order) -> Ints:
    """The row of each of these ids in a column, −1 where it is not there; `find` finds them in one that has not moved."""
    if not isinstance(column, MovedStrings):
        return find(column, ids)
    in_base, in_new = find(column.base, ids), find(column.new, ids)
    of_base = column.merge.places(in_base)
    return np.where(in_new >= 0, column.merge.new_K[in_new], of_base) if len(column.merge.new_K) else of_base


def _unless_all_new(column: Strings, merge: Merge, new: Strings) -> Strings:
    return MovedStrings(column, merge, new) if len(new) < len(merge) else new


@dataclass(frozen=True)
class MovedBlock:
    """A block whose rows and columns have moved: without the entries of rows that are `replaced` (and, `both_ways`, of columns of the same
    number), and with entries added.
    """

    base: sp.csr_array
    rows: Merge
    columns: Merge
    replaced_G: Ints
    """In order."""
    both_ways: bool
    added: Entries

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), len(self.columns)

    @cached_property
    def whole(self) -> sp.csr_array:
        """All entries as one block."""
        row_L, gone_X = self.rows.place_L, None
        if self.both_ways:
            replaced_L = np.zeros(len(row_L), bool)
            replaced_L[self.replaced_G] = True
            gone_X = replaced_L[self.base.indices] | np.repeat(replaced_L, np.diff(self.base.indptr))
        else:
            row_L = row_L.copy()
            row_L[self.replaced_G] = -1
        return edited(self.base, row_L, self.columns.place_L, self.shape, self.added, gone_X)

    def moved(self, rows: Merge, columns: Merge, added: Entries, replaced_R: Ints, both_ways: bool) -> "MovedBlock":
        """The same after another edit; `replaced_R` are rows as they are now."""
        row_X, column_X = rows.places(self.added.row_X), columns.places(self.added.column_X)
        stays = (row_X >= 0) & (column_X >= 0) & ~np.isin(row_X, replaced_R)
        if both_ways:
            stays &= ~np.isin(column_X, replaced_R)
        kept = Entries(row_X[stays], column_X[stays], self.added.value_X[stays])
        all_rows = self.rows.then(rows)
        replaced_G = np.union1d(self.replaced_G, there(all_rows.lasts(replaced_R)))
        return MovedBlock(self.base, all_rows, self.columns.then(columns), replaced_G, both_ways, kept.and_(added))

    def taken(self, rows_R: Ints) -> sp.csr_array:
        """The entries of some rows: CSR[R, D]."""
        last_R = self.rows.lasts(rows_R)
        from_base = (last_R >= 0) & ~np.isin(last_R, self.replaced_G)
        part = self.base[last_R[from_base], :]
        row_X = np.repeat(np.flatnonzero(from_base), np.diff(part.indptr))
        column_X = self.columns.places(part.indices.astype(np.int64))
        stays = column_X >= 0
        if self.both_ways:
            stays &= ~np.isin(part.indices, self.replaced_G)
        place_X, added = _among(rows_R, self.added.row_X)
        both = (
            (part.data[stays], self.added.value_X[added]),
            (row_X[stays], place_X),
            (column_X[stays], self.added.column_X[added]),
        )
        values, rows, columns = (np.concatenate(each) for each in both)
        shape = len(rows_R), self.shape[1]
        return sp.csr_array(sp.coo_array((values.astype(np.float32, copy=False), (rows, columns)), shape=shape))


Block: TypeAlias = sp.csr_array | MovedBlock


def moved_block(
    block: Block,
    rows: Merge,
    columns: Merge,
    added: Entries,
    replaced_R: Ints = NO_ROWS,
    both_ways: bool = False,
) -> Block:
    """The block with its rows and columns where they are now, without the entries of the rows `replaced_R` (in order), and with those added; a
    place that is given twice has the sum. Put together at once where more is new than is left.
    """
    if isinstance(block, MovedBlock):
        return block.moved(rows, columns, added.summed(len(columns)), replaced_R, both_ways)
    moved = MovedBlock(block, rows, columns, there(rows.lasts(replaced_R)), both_ways, added)
    if len(added.row_X) >= block.nnz:
        return moved.whole
    return replace(moved, added=added.summed(len(columns)))


def whole(column: Any) -> Any:
    """A column with all that has changed put into it."""
    return column.whole if isinstance(column, MovedStrings | MovedBlock | MovedNumbers) else column


def taken(block: Block, rows_R: Ints) -> sp.csr_array:
    """The entries of some rows: CSR[R, D]."""
    return block.taken(rows_R) if isinstance(block, MovedBlock) else sp.csr_array(block[rows_R, :])


def cells(block: Block, rows_R: Ints, columns_C: Ints) -> Floats:
    """What stands in some columns of some rows, however long these are: float32[R, C]."""
    if not isinstance(block, MovedBlock):
        return cells_of(block, rows_R, columns_C)
    last_R, last_C = block.rows.lasts(rows_R), block.columns.lasts(columns_C)
    kept_R, kept_C = (last_R >= 0) & ~np.isin(last_R, block.replaced_G), last_C >= 0
    if block.both_ways:
        kept_C &= ~np.isin(last_C, block.replaced_G)
    found_RC = np.zeros((len(rows_R), len(columns_C)), np.float32)
    found_RC[np.ix_(kept_R, kept_C)] = cells_of(block.base, last_R[kept_R], last_C[kept_C])
    place_X, added = _among(rows_R, block.added.row_X)
    at_X, of_X = _among(columns_C, block.added.column_X[added])
    found_RC[place_X[of_X], at_X] += block.added.value_X[added[of_X]]
    return found_RC


def _among(rows_R: Ints, row_X: Ints) -> tuple[Ints, Ints]:
    """The entries that are in one of these rows: the place of the row among them, and the entry."""
    order = np.argsort(row_X, kind="stable")
    first_R, end_R = (np.searchsorted(row_X[order], rows_R, side) for side in ("left", "right"))
    count_R = end_R - first_R
    place_X = np.repeat(np.arange(len(rows_R)), count_R)
    return place_X, order[
        np.arange(count_R.sum()) - np.repeat(np.cumsum(count_R) - count_R, count_R) + first_R[place_X]
    ]
