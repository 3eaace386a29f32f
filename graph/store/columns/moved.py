"""Columns of an earlier generation, stored with the changes since then; the changes are applied only where a caller needs the full column.

An edit therefore neither copies nor writes unchanged rows. The file defines, in this order: columns of numbers, which may be row numbers of a table
whose rows have moved too (such as the document of each passage); texts, including ids; sparse blocks; and the functions that read them.
Legend: L previous rows, N current rows, K inserted rows, G deleted or replaced rows, V values, C and D columns before and after,
R requested rows, X entries."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graph.store.columns.blocks import Entries, cells_of, edit_block
from graph.store.columns.row_map import NO_ROWS, RowMap, without_missing
from graph.store.columns.strings import Ids, Strings, id_bytes, rows_among_sorted
from graph.types import Floats, IdBytes, Ints


@dataclass(frozen=True)
class MovedNumbers:
    """A column of numbers with deleted and inserted rows."""

    base: Ints
    merge: RowMap
    new_K: Ints
    """The numbers of the inserted rows."""
    of: RowMap | None = None
    """If the numbers are row numbers, the map of those rows, which deletes no row that a remaining number refers to; else None."""

    @cached_property
    def assembled(self) -> Ints:
        """All current numbers."""
        if self.of is None or self.of.is_identity:
            return self.merge.apply(self.base, self.new_K)
        return self.merge.apply(self.of.current_L[self.base], self.new_K)

    def __len__(self) -> int:
        return len(self.merge)

    def __getitem__(self, rows: Any) -> Ints:
        """The numbers of some rows: an index, a slice, an array or a mask, as in numpy."""
        if isinstance(rows, slice) or np.asarray(rows).dtype == bool:
            chosen: Ints = self.assembled[rows]
            return chosen
        row_R = np.asarray(rows)
        row_R = np.where(row_R < 0, row_R + len(self), row_R)
        if row_R.min(initial=0) < 0:
            raise IndexError(f"a row below −{len(self)}")
        previous_R = self.merge.previous_rows(row_R)
        number_R = np.empty(previous_R.shape, np.int64)
        in_base_R = previous_R >= 0
        old = self.base[previous_R[in_base_R]]
        number_R[in_base_R] = old if self.of is None else self.of.current_rows(old)
        number_R[~in_base_R] = self.new_K[np.searchsorted(self.merge.inserted_K, row_R[~in_base_R])]
        return number_R

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Ints:
        return np.array(self.assembled, dtype, copy=copy)

    def moved(self, merge: RowMap, new_K: Ints, of: RowMap | None) -> "Numbers":
        """The column after another edit."""
        total = self.merge.then(merge)
        previous_K = merge.previous_rows(total.inserted_K)
        inserted_before_K = previous_K >= 0
        numbers_K = np.empty(len(total.inserted_K), np.int64)
        old = self.new_K[np.searchsorted(self.merge.inserted_K, previous_K[inserted_before_K])]
        numbers_K[inserted_before_K] = old if of is None else of.current_rows(old)
        numbers_K[~inserted_before_K] = new_K
        both = of if self.of is None or of is None else self.of.then(of)
        return _numbers_unless_all_new(self.base, total, numbers_K, self.of if of is None else both)


Numbers: TypeAlias = Ints | MovedNumbers


def moved_numbers(column: Numbers, merge: RowMap, new_K: Ints, of: RowMap | None = None) -> Any:
    """The column after an edit, with the numbers `new_K` in the inserted rows; if they are row numbers, `of` maps previous to current row numbers."""
    if isinstance(column, MovedNumbers):
        return column.moved(merge, new_K, of)
    return _numbers_unless_all_new(column, merge, new_K, of)


def count_at_least(column: Numbers, least: int) -> int:
    """The count of numbers that are at least `least`, in a column of numbers that are not row numbers."""
    if isinstance(column, MovedNumbers):
        gone = int(np.count_nonzero(column.base[column.merge.deleted_G] >= least))
        return count_at_least(column.base, least) - gone + count_at_least(column.new_K, least)
    return int(np.count_nonzero(column >= least)) if least else len(column)


def renumber_from(column: Numbers, end: int) -> tuple[Ints, Numbers]:
    """The rows whose numbers are at least `end` (only inserted rows, if the column has moved); and the column with those numbers renumbered from `end`."""
    if isinstance(column, MovedNumbers):
        rows, new_K = _renumber_from(column.new_K, end)
        return column.merge.inserted_K[rows], replace(column, new_K=new_K)
    return _renumber_from(column, end)


def _renumber_from(numbers: Ints, end: int) -> tuple[Ints, Ints]:
    rows, renumbered = np.flatnonzero(numbers >= end), np.array(numbers)
    renumbered[rows] = end + np.arange(len(rows))
    return rows, renumbered


def changed_numbers(column: Numbers, current_N: Ints) -> Numbers:
    """The column with the numbers `current_N`: if it has moved, with a change for each number that differs."""
    if not isinstance(column, MovedNumbers):
        return current_N
    changed = np.flatnonzero(column.assembled != current_N)
    return column.moved(RowMap.of(len(current_N), changed, changed), current_N[changed], None)


def numbers_below(column: Numbers, values_V: Ints) -> Ints:
    """For each value, the number of smaller numbers in a sorted column."""
    if not isinstance(column, MovedNumbers):
        return np.searchsorted(column, values_V)
    before_V = values_V if column.of is None else column.of.previous_or_next(values_V)
    in_base = np.searchsorted(column.base, before_V)
    return in_base - np.searchsorted(column.merge.deleted_G, in_base) + np.searchsorted(column.new_K, values_V)


def rows_with_numbers(column: Numbers, values_V: Ints) -> Ints:
    """The rows of a sorted column that have one of these numbers, which are sorted and distinct."""
    first_V, end_V = numbers_below(column, values_V), numbers_below(column, values_V + 1)
    return ranges(first_V, end_V)


def rows_holding(column: Numbers, values_V: Ints) -> Ints:
    """The rows, ascending, that have one of these numbers, in a column in any order."""
    if not isinstance(column, MovedNumbers):
        return np.flatnonzero(np.isin(column, values_V)) if len(values_V) else values_V
    previous_V = values_V if column.of is None else column.of.previous_rows(values_V)
    row_X = column.merge.current_rows(rows_holding(column.base, without_missing(previous_V)))
    inserted = column.merge.inserted_K[np.isin(column.new_K, values_V)]
    return np.sort(np.concatenate([without_missing(row_X), inserted]))


def ranges(first_V: Ints, end_V: Ints) -> Ints:
    """The rows of all ranges, concatenated.

    >>> ranges(np.array([2, 7, 9]), np.array([4, 7, 10])).tolist()
    [2, 3, 9]
    """
    count_V = end_V - first_V
    rows: Ints = np.arange(count_V.sum()) + np.repeat(first_V - np.cumsum(count_V) + count_V, count_V)
    return rows


def _numbers_unless_all_new(base: Ints, merge: RowMap, new_K: Ints, of: RowMap | None) -> Numbers:
    return MovedNumbers(base, merge, new_K, of) if len(new_K) < len(merge) else new_K


ROWS_PER_REQUESTED = 8
"""Texts are read one by one if fewer than one row in this many is requested."""


class MovedStrings(Strings):
    """A column of texts with deleted and inserted rows. `data` and `starts` are assembled when first read."""

    base: Strings
    merge: RowMap
    new: Strings
    """The texts of the inserted rows, in order."""

    def __init__(self, base: Strings, merge: RowMap, new: Strings) -> None:
        vars(self).update(base=base, merge=merge, new=new)

    @cached_property
    def assembled(self) -> Strings:
        """All current texts."""
        return self.base.splice(self.merge.previous_N, self.new)

    @cached_property
    def data(self) -> NDArray[np.uint8]:
        return self.assembled.data

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        return self.assembled.starts

    def __len__(self) -> int:
        return len(self.merge)

    def __getitem__(self, row: int) -> str:
        previous, inserted = self.merge.origin(range(len(self))[row])
        return self.new[inserted] if previous < 0 else self.base[previous]

    def take(self, rows: NDArray[np.int64]) -> Strings:
        few = ROWS_PER_REQUESTED * len(rows) < len(self)
        return Strings.of(self[int(row)] for row in rows) if few else super().take(rows)

    def rows_where(self, choose: Callable[[Strings], Ints]) -> Ints:
        old = self.merge.current_rows(choose(self.base))
        return np.sort(np.concatenate([without_missing(old), self.merge.inserted_K[choose(self.new)]]))

    def moved(self, merge: RowMap, new: Strings) -> Strings:
        total = self.merge.then(merge)
        previous_K = merge.previous_rows(total.inserted_K)
        row_K = np.where(previous_K >= 0, np.searchsorted(self.merge.inserted_K, previous_K), -1)
        return _strings_unless_all_new(self.base, total, self.new.splice(row_K, new))


def moved_strings(column: Strings, merge: RowMap, new: Strings) -> Strings:
    """The column after an edit, with the texts `new` in the inserted rows."""
    return column.moved(merge, new) if isinstance(column, MovedStrings) else _strings_unless_all_new(column, merge, new)


def ids_below(column: Strings, ids: IdBytes) -> Ints:
    """For each of `ids`, the number of smaller ids in a sorted column."""
    if not isinstance(column, MovedStrings):
        return np.searchsorted(id_bytes(column), ids)
    in_base = ids_below(column.base, ids)
    remaining = in_base - np.searchsorted(column.merge.deleted_G, in_base)
    return remaining + np.searchsorted(id_bytes(column.new), ids)


def find_ids(column: Strings, ids: Ids, find: Callable[[Ids, Ids], Ints] = rows_among_sorted) -> Ints:
    """The row of each id in a column, −1 if absent; `find` looks them up in a column that has not moved."""
    if not isinstance(column, MovedStrings):
        return find(column, ids)
    in_base, in_new = find(column.base, ids), find(column.new, ids)
    old = column.merge.current_rows(in_base)
    return np.where(in_new >= 0, column.merge.inserted_K[in_new], old) if len(column.merge.inserted_K) else old


def _strings_unless_all_new(column: Strings, merge: RowMap, new: Strings) -> Strings:
    return MovedStrings(column, merge, new) if len(new) < len(merge) else new


@dataclass(frozen=True)
class MovedBlock:
    """A block whose rows and columns have moved, without the entries of the rows `replaced_G` (if `both_ways`, also of the columns with the same
    numbers), and with the entries `added`.
    """

    base: sp.csr_array
    rows: RowMap
    columns: RowMap
    replaced_G: Ints
    """Previous rows, ascending."""
    both_ways: bool
    added: Entries

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), len(self.columns)

    @cached_property
    def assembled(self) -> sp.csr_array:
        """All entries as one block."""
        row_L, dropped_X = self.rows.current_L, None
        if self.both_ways:
            replaced_L = np.zeros(len(row_L), bool)
            replaced_L[self.replaced_G] = True
            dropped_X = replaced_L[self.base.indices] | np.repeat(replaced_L, np.diff(self.base.indptr))
        else:
            row_L = row_L.copy()
            row_L[self.replaced_G] = -1
        return edit_block(self.base, row_L, self.columns.current_L, self.shape, self.added, dropped_X)

    def moved(self, rows: RowMap, columns: RowMap, added: Entries, replaced_R: Ints, both_ways: bool) -> "MovedBlock":
        """The block after another edit; `replaced_R` are current rows."""
        row_X, column_X = rows.current_rows(self.added.row_X), columns.current_rows(self.added.column_X)
        stays = (row_X >= 0) & (column_X >= 0) & ~np.isin(row_X, replaced_R)
        if both_ways:
            stays &= ~np.isin(column_X, replaced_R)
        remaining = Entries(row_X[stays], column_X[stays], self.added.value_X[stays])
        all_rows, all_columns = self.rows.then(rows), self.columns.then(columns)
        replaced_G = np.union1d(self.replaced_G, without_missing(all_rows.previous_rows(replaced_R)))
        return MovedBlock(self.base, all_rows, all_columns, replaced_G, both_ways, remaining.followed_by(added))


Block: TypeAlias = sp.csr_array | MovedBlock


def moved_block(
    block: Block, rows: RowMap, columns: RowMap, added: Entries, replaced_R: Ints = NO_ROWS, both_ways: bool = False
) -> Block:
    """The block after an edit of its rows and columns, without the entries of the rows `replaced_R` (ascending), and with the entries `added`;
    entries of the same cell are summed. A block that has not moved yet is assembled immediately if at least as many entries are added as the block has.
    """
    if isinstance(block, MovedBlock):
        return block.moved(rows, columns, added.summed(len(columns)), replaced_R, both_ways)
    moved = MovedBlock(block, rows, columns, without_missing(rows.previous_rows(replaced_R)), both_ways, added)
    if len(added.row_X) >= block.nnz:
        return moved.assembled
    return replace(moved, added=added.summed(len(columns)))


def assembled(column: Any) -> Any:
    """A column with its changes applied."""
    return column.assembled if isinstance(column, MovedStrings | MovedBlock | MovedNumbers) else column


class AssembledWhenRead:
    """Base of a dataclass of columns: those in `vars(self)["_moved"]` are assembled only when first read, because no caller reads all of them."""

    if not TYPE_CHECKING:  # Otherwise a type checker would accept any attribute.

        def __getattr__(self, name: str) -> Any:
            moved = vars(self).get("_moved", {})
            if name not in moved:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            return vars(self).setdefault(name, assembled(moved[name]))


def take_rows(block: Block, rows_R: Ints) -> sp.csr_array:
    """The entries of some rows: CSR[R, D]."""
    if not isinstance(block, MovedBlock):
        return sp.csr_array(block[rows_R, :])
    previous_R = block.rows.previous_rows(rows_R)
    from_base = (previous_R >= 0) & ~np.isin(previous_R, block.replaced_G)
    part = block.base[previous_R[from_base], :]
    row_X = np.repeat(np.flatnonzero(from_base), np.diff(part.indptr))
    column_X = block.columns.current_rows(part.indices.astype(np.int64))
    stays = column_X >= 0
    if block.both_ways:
        stays &= ~np.isin(part.indices, block.replaced_G)
    added_row_X, added = _among(rows_R, block.added.row_X)
    both = (
        (part.data[stays], block.added.value_X[added]),
        (row_X[stays], added_row_X),
        (column_X[stays], block.added.column_X[added]),
    )
    values, rows, columns = (np.concatenate(pair) for pair in both)
    shape = len(rows_R), block.shape[1]
    return sp.csr_array(sp.coo_array((values.astype(np.float32, copy=False), (rows, columns)), shape=shape))


def cells(block: Block, rows_R: Ints, columns_C: Ints) -> Floats:
    """The values in some columns of some rows, found without reading whole rows: float32[R, C]."""
    if not isinstance(block, MovedBlock):
        return cells_of(block, rows_R, columns_C)
    previous_R, previous_C = block.rows.previous_rows(rows_R), block.columns.previous_rows(columns_C)
    in_base_R, in_base_C = (previous_R >= 0) & ~np.isin(previous_R, block.replaced_G), previous_C >= 0
    if block.both_ways:
        in_base_C &= ~np.isin(previous_C, block.replaced_G)
    value_RC = np.zeros((len(rows_R), len(columns_C)), np.float32)
    value_RC[np.ix_(in_base_R, in_base_C)] = cells_of(block.base, previous_R[in_base_R], previous_C[in_base_C])
    row_X, added = _among(rows_R, block.added.row_X)
    column_X, chosen_X = _among(columns_C, block.added.column_X[added])
    value_RC[row_X[chosen_X], column_X] += block.added.value_X[added[chosen_X]]
    return value_RC


def _among(rows_R: Ints, row_X: Ints) -> tuple[Ints, Ints]:
    """The entries in these rows: for each entry, the position of its row in `rows_R`, and the entry's position in `row_X`."""
    order = np.argsort(row_X, kind="stable")
    first_R, end_R = (np.searchsorted(row_X[order], rows_R, side) for side in ("left", "right"))
    count_R = end_R - first_R
    return np.repeat(np.arange(len(rows_R)), count_R), order[ranges(first_R, end_R)]
