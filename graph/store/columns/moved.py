"""Columns of the last generation in which a little has changed: the change is kept beside them, and applied where somebody needs all of it.

So an edit neither copies nor writes what it leaves as it is. First columns of numbers, which may be rows that have moved themselves (of
passages, the documents that they are of); then texts, ids among them, and sparse blocks; last what is asked of any of them.
Legend: L rows of the last generation, N rows now, K new ones, V values, C and D columns then and now, R rows that are asked for, X entries."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graph.store.columns.blocks import Entries, cells_of, edited
from graph.store.columns.row_map import NO_ROWS, RowMap, existing
from graph.store.columns.strings import Ids, Strings, id_bytes, rows_in_order
from graph.types import Floats, IdBytes, Ints


@dataclass(frozen=True)
class MovedNumbers:
    """A column whose rows have moved, with new ones between."""

    base: Ints
    merge: RowMap
    new_K: Ints
    """The numbers of the new rows."""
    of: RowMap | None = None
    """How the rows that the numbers are have moved, none of which is gone; None where they are no rows."""

    @cached_property
    def whole(self) -> Ints:
        """All numbers."""
        if self.of is None or self.of.moves_nothing:
            return self.merge.put_in(self.base, self.new_K)
        return self.merge.put_in(self.of.place_L[self.base], self.new_K)

    def __len__(self) -> int:
        return len(self.merge)

    def __getitem__(self, rows: Any) -> Ints:
        """The numbers of some rows, as numpy takes them."""
        if isinstance(rows, slice) or np.asarray(rows).dtype == bool:
            chosen: Ints = self.whole[rows]
            return chosen
        last_R = self.merge.lasts(np.asarray(rows))
        found = np.empty(last_R.shape, np.int64)
        known_R = last_R >= 0
        kept = self.base[last_R[known_R]]
        found[known_R] = kept if self.of is None else self.of.places(kept)
        found[~known_R] = self.new_K[np.searchsorted(self.merge.new_K, np.asarray(rows)[~known_R])]
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Ints:
        return np.asarray(self.whole, dtype)

    def below(self, values_V: Ints) -> Ints:
        """How many numbers of a column that is in order are less than each of these."""
        before_V = values_V if self.of is None else self.of.befores(values_V)
        in_base = np.searchsorted(self.base, before_V)
        return in_base - np.searchsorted(self.merge.gone_G, in_base) + np.searchsorted(self.new_K, values_V)

    def moved(self, merge: RowMap, new_K: Ints, of: RowMap | None) -> "Numbers":
        """The same after another edit."""
        total = self.merge.then(merge)
        last_K = merge.lasts(total.new_K)
        own = last_K >= 0
        numbers_K = np.empty(len(total.new_K), np.int64)
        kept = self.new_K[np.searchsorted(self.merge.new_K, last_K[own])]
        numbers_K[own], numbers_K[~own] = kept if of is None else of.places(kept), new_K
        both = of if self.of is None or of is None else self.of.then(of)
        return _numbers_unless_all_new(self.base, total, numbers_K, self.of if of is None else both)


Numbers: TypeAlias = Ints | MovedNumbers


def moved_numbers(column: Numbers, merge: RowMap, new_K: Ints, of: RowMap | None = None) -> Any:
    """The column with its rows where they are now, and new ones between; of numbers that are rows, `of` says where those are now."""
    if isinstance(column, MovedNumbers):
        return column.moved(merge, new_K, of)
    return _numbers_unless_all_new(column, merge, new_K, of)


def whole_numbers(column: Numbers) -> Ints:
    """All numbers."""
    return column.whole if isinstance(column, MovedNumbers) else column


def numbers_from(column: Numbers, least: int) -> int:
    """How many numbers of a column of no rows are no less than this one."""
    if isinstance(column, MovedNumbers):
        gone = int(np.count_nonzero(column.base[column.merge.gone_G] >= least))
        return numbers_from(column.base, least) - gone + numbers_from(column.new_K, least)
    return int(np.count_nonzero(column >= least)) if least else len(column)


def appended(column: Numbers, end: int) -> tuple[Ints, Numbers]:
    """The rows whose numbers are from `end` on, all of them new in a column that has moved; and the column with those numbered one after another."""
    if isinstance(column, MovedNumbers):
        rows, new_K = _appended(column.new_K, end)
        return column.merge.new_K[rows], replace(column, new_K=new_K)
    return _appended(column, end)


def _appended(numbers: Ints, end: int) -> tuple[Ints, Ints]:
    rows, numbered = np.flatnonzero(numbers >= end), np.array(numbers)
    numbered[rows] = end + np.arange(len(rows))
    return rows, numbered


def changed_numbers(column: Numbers, now: Ints) -> Numbers:
    """The column with the numbers that it is to have now: beside those of before if it has moved and little is changed."""
    if not isinstance(column, MovedNumbers):
        return now
    changed = np.flatnonzero(column.whole != now)
    return column.moved(RowMap.of(len(now), changed, changed), now[changed], None)


def numbers_below(column: Numbers, values_V: Ints) -> Ints:
    """How many numbers of a column that is in order are less than each of these."""
    return column.below(values_V) if isinstance(column, MovedNumbers) else np.searchsorted(column, values_V)


def rows_with_numbers(column: Numbers, values_V: Ints) -> Ints:
    """The rows of a column in order that have one of these numbers, which are in order and differ."""
    first_V, end_V = numbers_below(column, values_V), numbers_below(column, values_V + 1)
    return ranges(first_V, end_V)


def rows_holding(column: Numbers, values_V: Ints) -> Ints:
    """The rows, in order, that have one of these numbers: of a column in any order."""
    if not isinstance(column, MovedNumbers):
        return np.flatnonzero(np.isin(column, values_V)) if len(values_V) else values_V
    last_V = values_V if column.of is None else column.of.lasts(values_V)
    place_X = column.merge.places(rows_holding(column.base, existing(last_V)))
    new = column.merge.new_K[np.isin(column.new_K, values_V)]
    return np.sort(np.concatenate([existing(place_X), new]))


def ranges(first_V: Ints, end_V: Ints) -> Ints:
    """The rows of ranges, one range after another.

    >>> ranges(np.array([2, 7, 9]), np.array([4, 7, 10])).tolist()
    [2, 3, 9]
    """
    count_V = end_V - first_V
    rows: Ints = np.arange(count_V.sum()) + np.repeat(first_V - np.cumsum(count_V) + count_V, count_V)
    return rows


def _numbers_unless_all_new(base: Ints, merge: RowMap, new_K: Ints, of: RowMap | None) -> Numbers:
    return MovedNumbers(base, merge, new_K, of) if len(new_K) < len(merge) else new_K


FEW_OF = 8
"""Texts are taken one by one where they are fewer than one of so many."""


class MovedStrings(Strings):
    """A column whose rows have moved, with new ones between. `data` and `starts` are put together when they are asked for."""

    base: Strings
    merge: RowMap
    new: Strings
    """The texts of the new rows, in order."""

    def __init__(self, base: Strings, merge: RowMap, new: Strings) -> None:
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
        return np.sort(np.concatenate([existing(moved), self.merge.new_K[chosen(self.new)]]))

    def moved(self, merge: RowMap, new: Strings) -> Strings:
        total = self.merge.then(merge)
        last_K = merge.lasts(total.new_K)
        own_K = np.where(last_K >= 0, np.searchsorted(self.merge.new_K, last_K), -1)
        return _strings_unless_all_new(self.base, total, self.new.splice(own_K, new))


def moved_strings(column: Strings, merge: RowMap, new: Strings) -> Strings:
    """The column with its rows where they are now, and new ones between."""
    return column.moved(merge, new) if isinstance(column, MovedStrings) else _strings_unless_all_new(column, merge, new)


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


def _strings_unless_all_new(column: Strings, merge: RowMap, new: Strings) -> Strings:
    return MovedStrings(column, merge, new) if len(new) < len(merge) else new


@dataclass(frozen=True)
class MovedBlock:
    """A block whose rows and columns have moved: without the entries of rows that are `replaced` (and, `both_ways`, of columns of the same
    number), and with entries added.
    """

    base: sp.csr_array
    rows: RowMap
    columns: RowMap
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

    def moved(self, rows: RowMap, columns: RowMap, added: Entries, replaced_R: Ints, both_ways: bool) -> "MovedBlock":
        """The same after another edit; `replaced_R` are rows as they are now."""
        row_X, column_X = rows.places(self.added.row_X), columns.places(self.added.column_X)
        stays = (row_X >= 0) & (column_X >= 0) & ~np.isin(row_X, replaced_R)
        if both_ways:
            stays &= ~np.isin(column_X, replaced_R)
        kept = Entries(row_X[stays], column_X[stays], self.added.value_X[stays])
        all_rows = self.rows.then(rows)
        replaced_G = np.union1d(self.replaced_G, existing(all_rows.lasts(replaced_R)))
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
    rows: RowMap,
    columns: RowMap,
    added: Entries,
    replaced_R: Ints = NO_ROWS,
    both_ways: bool = False,
) -> Block:
    """The block with its rows and columns where they are now, without the entries of the rows `replaced_R` (in order), and with those added; a
    place that is given twice has the sum. Put together at once where more is new than is left.
    """
    if isinstance(block, MovedBlock):
        return block.moved(rows, columns, added.summed(len(columns)), replaced_R, both_ways)
    moved = MovedBlock(block, rows, columns, existing(rows.lasts(replaced_R)), both_ways, added)
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
