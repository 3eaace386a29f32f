"""The map from the rows of the previous generation to the current rows: some are deleted, others inserted between the remaining rows.

A map stores only the changes, so a few changes among many rows cost little.
Legend: L previous rows, N current rows, K inserted rows, G deleted rows, X requested rows, F rows that were looked up.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from graph.types import Ints

RUNS = 200
"""With up to this many insertions or deletions, an array is copied run by run; with more, by `numpy.insert` or `numpy.delete`."""
NO_ROWS: Ints = np.zeros(0, np.int64)
A = TypeVar("A", bound=np.generic)


@dataclass(frozen=True, eq=False)
class RowMap:
    """Maps the rows of the previous generation to the current rows and back; rows that stay keep their order."""

    previous_count: int
    """The number of rows of the previous generation."""
    deleted_G: Ints
    """The previous rows that are deleted, ascending."""
    insert_at_K: Ints
    """The number of remaining rows before each inserted row, ascending: the positions that `numpy.insert` takes."""

    @classmethod
    def of(cls, previous_count: int, deleted_G: Ints, before_K: Ints) -> "RowMap":
        """The map, given the deleted rows and, for each inserted row, the previous row that it precedes (ascending), which may be deleted.

        >>> RowMap.of(3, np.array([1]), np.array([1, 3])).previous_N.tolist()
        [0, -1, 2, -1]
        """
        return cls(previous_count, deleted_G, before_K - np.searchsorted(deleted_G, before_K))

    @classmethod
    def of_matches(
        cls, previous_count: int, deleted_G: Ints, at_F: Ints, known_F: NDArray[np.bool_]
    ) -> tuple["RowMap", Ints]:
        """The map, given rows F that were looked up; also the current row of each. A known row is the previous row `at_F` and stays; an unknown row
        is inserted before the previous row `at_F`.
        """
        merge = cls.of(previous_count, np.setdiff1d(deleted_G, at_F[known_F]), at_F[~known_F])
        current_F = np.empty(len(at_F), np.int64)
        current_F[known_F], current_F[~known_F] = merge.current_rows(at_F[known_F]), merge.inserted_K
        return merge, current_F

    @classmethod
    def of_previous(cls, previous_N: Ints, previous_count: int) -> "RowMap":
        """The map, given the previous row of each current row, ascending (`in_order`); −1 for an inserted row."""
        stays_L = np.zeros(previous_count, bool)
        stays_L[previous_N[previous_N >= 0]] = True
        inserted_K = np.flatnonzero(previous_N < 0)
        return cls(previous_count, np.flatnonzero(~stays_L), inserted_K - np.arange(len(inserted_K)))

    def __len__(self) -> int:
        return self.previous_count - len(self.deleted_G) + len(self.insert_at_K)

    @cached_property
    def inserted_K(self) -> Ints:
        """The current rows that are inserted."""
        return self.insert_at_K + np.arange(len(self.insert_at_K))

    @property
    def before_K(self) -> Ints:
        """The remaining previous row that each inserted row precedes; `previous_count` if there is none."""
        return self.insert_at_K + self._deleted_before(self.insert_at_K)

    @property
    def is_identity(self) -> bool:
        """Whether nothing is deleted or inserted."""
        return not len(self.deleted_G) and not len(self.insert_at_K)

    def current_rows(self, previous_X: Ints) -> Ints:
        """The current rows of previous rows; −1 for deleted rows and for −1."""
        deleted_before_X = np.searchsorted(self.deleted_G, previous_X)
        rank_X = previous_X - deleted_before_X
        current_X = rank_X + np.searchsorted(self.insert_at_K, rank_X, "right")
        is_deleted_X = np.append(self.deleted_G, self.previous_count)[deleted_before_X] == previous_X
        return np.where(is_deleted_X | (previous_X < 0), -1, current_X)

    def previous_rows(self, row_X: Ints) -> Ints:
        """The previous rows of current rows; −1 for inserted rows."""
        inserted_before_X = np.searchsorted(self.inserted_K, row_X)
        is_inserted_X = np.append(self.inserted_K, len(self))[inserted_before_X] == row_X
        return np.where(is_inserted_X, -1, self.previous_or_next(row_X))

    def origin(self, row: int) -> tuple[int, int]:
        """(previous row, −1) of a current row, or (−1, its index among the inserted rows). Fast for single rows."""
        inserted_K, deleted_rank_G = self._lists
        before = bisect_left(inserted_K, row)
        if before < len(inserted_K) and inserted_K[before] == row:
            return -1, before
        return row - before + bisect_right(deleted_rank_G, row - before), -1

    @cached_property
    def _lists(self) -> tuple[list[int], list[int]]:
        return self.inserted_K.tolist(), (self.deleted_G - np.arange(len(self.deleted_G))).tolist()

    def previous_or_next(self, row_X: Ints) -> Ints:
        """The previous rows of current rows; for an inserted row, the remaining previous row that it precedes. `len(self)` maps to `previous_count`."""
        rank_X = row_X - np.searchsorted(self.inserted_K, row_X)
        return rank_X + self._deleted_before(rank_X)

    @cached_property
    def previous_N(self) -> Ints:
        """The previous row of each current row; −1 for inserted ones."""
        return self.apply(np.arange(self.previous_count), np.full(len(self.insert_at_K), -1))

    @cached_property
    def current_L(self) -> Ints:
        """The current row of each previous row; −1 for deleted ones."""
        inverse = RowMap(len(self), self.inserted_K, self.deleted_G - np.arange(len(self.deleted_G)))
        return inverse.previous_N

    def then(self, after: "RowMap") -> "RowMap":
        """This map followed by another: from the rows before this map to the rows after the other. Cached, as columns of the same rows share it."""
        if after not in self._compositions:
            deleted, inserted = self.previous_rows(after.deleted_G), after.current_rows(self.inserted_K)
            deleted_G = np.sort(np.concatenate([self.deleted_G, without_missing(deleted)]))
            inserted_K = np.sort(np.concatenate([after.inserted_K, without_missing(inserted)]))
            self._compositions[after] = RowMap(self.previous_count, deleted_G, inserted_K - np.arange(len(inserted_K)))
        return self._compositions[after]

    @cached_property
    def _compositions(self) -> "WeakKeyDictionary[RowMap, RowMap]":
        return WeakKeyDictionary()

    def apply(self, column_L: NDArray[A], inserted_K: NDArray[Any]) -> NDArray[A]:
        """A column without its deleted values, and with the values of the inserted rows."""
        return put_between(_without(column_L, self.deleted_G), self.insert_at_K, inserted_K)

    def _deleted_before(self, rank_X: Ints) -> Ints:
        """The number of deleted rows before each of these remaining rows; `rank_X` are their positions among the remaining rows."""
        return np.searchsorted(self.deleted_G - np.arange(len(self.deleted_G)), rank_X, "right")


def without_missing(row_X: Ints) -> Ints:
    """The rows that are not −1."""
    return row_X[row_X >= 0]


def in_order(previous_N: Ints) -> Ints:
    """The previous rows, with as few as possible replaced by −1 (new) so that the others ascend.

    >>> in_order(np.array([1, -1, 2, 0, 3])).tolist()
    [1, -1, 2, -1, 3]
    """
    known = np.flatnonzero(previous_N >= 0)
    if (np.diff(previous_N[known]) > 0).all():
        return previous_N
    # The longest ascending subsequence: `ends` contains, for each length, the lowest last value.
    ends: list[int] = []
    length_X = np.zeros(len(known), np.int64)
    for position, previous in enumerate(previous_N[known].tolist()):
        length_X[position] = bisect_left(ends, previous)
        ends[length_X[position] : length_X[position] + 1] = [previous]
    ascending_N, length = np.full(len(previous_N), -1), len(ends) - 1
    for position in range(len(known) - 1, -1, -1):
        if length_X[position] == length:
            ascending_N[known[position]], length = previous_N[known[position]], length - 1
    return ascending_N


def put_between(array: NDArray[A], at_K: Ints, values_K: NDArray[Any]) -> NDArray[A]:
    """`numpy.insert` at ascending positions; run by run if they are few, which takes a fifth of the time."""
    if len(at_K) > RUNS:
        return np.insert(array, at_K, values_K)
    values = values_K.astype(array.dtype, copy=False)[:, None]
    runs = _runs(array, at_K, 0)
    return np.concatenate([*(part for pair in zip(runs, values, strict=False) for part in pair), runs[-1]])


def _without(array: NDArray[A], deleted_G: Ints) -> NDArray[A]:
    """`numpy.delete`; run by run if few are deleted."""
    if not len(deleted_G):
        return array
    return np.delete(array, deleted_G) if len(deleted_G) > RUNS else np.concatenate(_runs(array, deleted_G, 1))


def _runs(array: NDArray[A], ends: Ints, skipped: int) -> Sequence[NDArray[A]]:
    """The runs of an array up to each of the ends, and the run after the last end; the `skipped` entries after each end are left out."""
    bounds = [0, *(ends + skipped).tolist()]
    return [array[start:end] for start, end in zip(bounds, [*ends.tolist(), len(array)], strict=True)]
