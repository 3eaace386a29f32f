"""Columns of whole numbers of which a little has changed: what changed is kept beside them (graph/store/columns/moved.py).

The numbers may be rows that have moved themselves: of passages, the documents that they are of.
Legend: L rows of the last generation, N rows now, K new ones, V values.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from graph.shared.types import Ints
from graph.store.columns.merge import Merge, there


@dataclass(frozen=True)
class MovedNumbers:
    """A column whose rows have moved, with new ones between."""

    base: Ints
    merge: Merge
    new_K: Ints
    """The numbers of the new rows."""
    of: Merge | None = None
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

    def moved(self, merge: Merge, new_K: Ints, of: Merge | None) -> "Numbers":
        """The same after another edit."""
        total = self.merge.then(merge)
        last_K = merge.lasts(total.new_K)
        own = last_K >= 0
        numbers_K = np.empty(len(total.new_K), np.int64)
        kept = self.new_K[np.searchsorted(self.merge.new_K, last_K[own])]
        numbers_K[own], numbers_K[~own] = kept if of is None else of.places(kept), new_K
        both = of if self.of is None or of is None else self.of.then(of)
        return _unless_all_new(self.base, total, numbers_K, self.of if of is None else both)


Numbers: TypeAlias = Ints | MovedNumbers


def moved_numbers(column: Numbers, merge: Merge, new_K: Ints, of: Merge | None = None) -> Any:
    """The column with its rows where they are now, and new ones between; of numbers that are rows, `of` says where those are now."""
    if isinstance(column, MovedNumbers):
        return column.moved(merge, new_K, of)
    return _unless_all_new(column, merge, new_K, of)


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
    return column.moved(Merge.of(len(now), changed, changed), now[changed], None)


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
    place_X = column.merge.places(rows_holding(column.base, there(last_V)))
    new = column.merge.new_K[np.isin(column.new_K, values_V)]
    return np.sort(np.concatenate([there(place_X), new]))


def ranges(first_V: Ints, end_V: Ints) -> Ints:
    """The rows of ranges, one range after another.

    >>> ranges(np.array([2, 7, 9]), np.array([4, 7, 10])).tolist()
    [2, 3, 9]
    """
    count_V = end_V - first_V
    rows: Ints = np.arange(count_V.sum()) + np.repeat(first_V - np.cumsum(count_V) + count_V, count_V)
    return rows


def _unless_all_new(base: Ints, merge: Merge, new_K: Ints, of: Merge | None) -> Numbers:
    return MovedNumbers(base, merge, new_K, of) if len(new_K) < len(merge) else new_K
