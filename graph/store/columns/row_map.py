"""Rows of the last generation and new ones, brought into one order.

A merge is told by what has changed, so that a little change of many rows is worked out of that little.
Legend: L rows of the last generation, N rows now, K new ones, G gone ones, X rows that are asked for.
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
"""Entries that are put between runs of the others, or left out between them."""
NO_ROWS: Ints = np.zeros(0, np.int64)
A = TypeVar("A", bound=np.generic)


@dataclass(frozen=True, eq=False)
class RowMap:
    """Where each row comes from, and where each row of the last generation is now; those that stay keep their order."""

    count: int
    """Rows of the last generation."""
    gone_G: Ints
    """Those of them that are gone, in order."""
    rank_K: Ints
    """How many rows that stay stand before each new one: never falling."""

    @classmethod
    def of(cls, count: int, gone_G: Ints, before_K: Ints) -> "RowMap":
        """So many rows but the gone ones, and new ones: each in front of a row of the last generation, whether that stays or not (never falling).

        >>> RowMap.of(3, np.array([1]), np.array([1, 3])).last_N.tolist()
        [0, -1, 2, -1]
        """
        return cls(count, gone_G, before_K - np.searchsorted(gone_G, before_K))

    @classmethod
    def of_found(cls, count: int, gone_G: Ints, at_F: Ints, known_F: NDArray[np.bool_]) -> tuple["RowMap", Ints]:
        """The rows that stay with those that were found, and where the found ones are now. What is known is the last row at its place, and
        not gone; what is not is new, in front of it.
        """
        merge = cls.of(count, np.setdiff1d(gone_G, at_F[known_F]), at_F[~known_F])
        place_F = np.empty(len(at_F), np.int64)
        place_F[known_F], place_F[~known_F] = merge.places(at_F[known_F]), merge.new_K
        return merge, place_F

    @classmethod
    def of_last(cls, last_N: Ints, count: int) -> "RowMap":
        """The row that each had among the `count` of the last generation, rising (`in_order`); −1 for a new one."""
        stays_L = np.zeros(count, bool)
        stays_L[last_N[last_N >= 0]] = True
        new_K = np.flatnonzero(last_N < 0)
        return cls(count, np.flatnonzero(~stays_L), new_K - np.arange(len(new_K)))

    def __len__(self) -> int:
        return self.count - len(self.gone_G) + len(self.rank_K)

    @cached_property
    def new_K(self) -> Ints:
        """The rows of the new ones."""
        return self.rank_K + np.arange(len(self.rank_K))

    @property
    def before_K(self) -> Ints:
        """In front of which row of the last generation that stays, or its end, each new one stands."""
        return self.rank_K + self._gone_before(self.rank_K)

    @property
    def moves_nothing(self) -> bool:
        """Whether every row is where it was."""
        return not len(self.gone_G) and not len(self.rank_K)

    def places(self, row_X: Ints) -> Ints:
        """Where rows of the last generation are now; −1 for what is gone, and for −1."""
        before_X = np.searchsorted(self.gone_G, row_X)
        rank_X = row_X - before_X
        place_X = rank_X + np.searchsorted(self.rank_K, rank_X, "right")
        gone_X = np.append(self.gone_G, self.count)[before_X] == row_X
        return np.where(gone_X | (row_X < 0), -1, place_X)

    def lasts(self, row_X: Ints) -> Ints:
        """Which row of the last generation each was; −1 for a new one."""
        before_X = np.searchsorted(self.new_K, row_X)
        new_X = np.append(self.new_K, len(self))[before_X] == row_X
        return np.where(new_X, -1, self.befores(row_X))

    def whence(self, row: int) -> tuple[int, int]:
        """Which row of the last generation a row was and −1, or −1 and its place among the new ones. Quick for one after another."""
        new_K, gone_rank_G = self._lists
        before = bisect_left(new_K, row)
        if before < len(new_K) and new_K[before] == row:
            return -1, before
        return row - before + bisect_right(gone_rank_G, row - before), -1

    @cached_property
    def _lists(self) -> tuple[list[int], list[int]]:
        return self.new_K.tolist(), (self.gone_G - np.arange(len(self.gone_G))).tolist()

    def befores(self, row_X: Ints) -> Ints:
        """The row of the last generation that each was, or, of a new one, in front of which it stands; its end for the end."""
        rank_X = row_X - np.searchsorted(self.new_K, row_X)
        return rank_X + self._gone_before(rank_X)

    @cached_property
    def last_N(self) -> Ints:
        """Which row of the last generation each was; −1 for a new one."""
        return self.put_in(np.arange(self.count), np.full(len(self.rank_K), -1))

    @cached_property
    def place_L(self) -> Ints:
        """Where each row of the last generation is now; −1 where it is gone."""
        back = RowMap(len(self), self.new_K, self.gone_G - np.arange(len(self.gone_G)))
        return back.last_N

    def then(self, after: "RowMap") -> "RowMap":
        """This one, then another: from the rows before this one to those after that. Columns of the same rows ask for it again and again."""
        if after not in self._followed:
            gone, new = self.lasts(after.gone_G), after.places(self.new_K)
            gone_G = np.sort(np.concatenate([self.gone_G, existing(gone)]))
            new_K = np.sort(np.concatenate([after.new_K, existing(new)]))
            self._followed[after] = RowMap(self.count, gone_G, new_K - np.arange(len(new_K)))
        return self._followed[after]

    @cached_property
    def _followed(self) -> "WeakKeyDictionary[RowMap, RowMap]":
        return WeakKeyDictionary()

    def put_in(self, column_L: NDArray[A], new_K: NDArray[Any]) -> NDArray[A]:
        """A column with its rows where they are now, and those of the new ones between."""
        return put_between(_without(column_L, self.gone_G), self.rank_K, new_K)

    def _gone_before(self, rank_X: Ints) -> Ints:
        """How many gone rows stand before those that stay, given by their places among them."""
        return np.searchsorted(self.gone_G - np.arange(len(self.gone_G)), rank_X, "right")


def existing(row_X: Ints) -> Ints:
    """The rows that there are."""
    return row_X[row_X >= 0]


def in_order(last_N: Ints) -> Ints:
    """The rows that each had, where those that do not stand in their old order, as few as can be, count as new (−1).

    >>> in_order(np.array([1, -1, 2, 0, 3])).tolist()
    [1, -1, 2, -1, 3]
    """
    known = np.flatnonzero(last_N >= 0)
    if (np.diff(last_N[known]) > 0).all():
        return last_N
    # The longest rising run of what need not stand side by side: of each length, the one that ends lowest.
    ends: list[int] = []
    length_X = np.zeros(len(known), np.int64)
    for place, last in enumerate(last_N[known].tolist()):
        length_X[place] = bisect_left(ends, last)
        ends[length_X[place] : length_X[place] + 1] = [last]
    rising, wanted = np.full(len(last_N), -1), len(ends) - 1
    for place in range(len(known) - 1, -1, -1):
        if length_X[place] == wanted:
            rising[known[place]], wanted = last_N[known[place]], wanted - 1
    return rising


def put_between(array: NDArray[A], before_K: Ints, values_K: NDArray[Any]) -> NDArray[A]:
    """`numpy.insert` at ascending places; run by run where they are few, in a fifth of the time."""
    if len(before_K) > RUNS:
        return np.insert(array, before_K, values_K)
    news = values_K.astype(array.dtype, copy=False)[:, None]
    runs = _runs(array, before_K, 0)
    return np.concatenate([*(part for pair in zip(runs, news, strict=False) for part in pair), runs[-1]])


def _without(array: NDArray[A], gone_G: Ints) -> NDArray[A]:
    """`numpy.delete`; run by run where few are gone."""
    if not len(gone_G):
        return array
    return np.delete(array, gone_G) if len(gone_G) > RUNS else np.concatenate(_runs(array, gone_G, 1))


def _runs(array: NDArray[A], ends: Ints, skipped: int) -> Sequence[NDArray[A]]:
    """The runs of an array up to each of the ends, and what is behind the last; so many entries are left out at each end."""
    bounds = [0, *(ends + skipped).tolist()]
    return [array[start:end] for start, end in zip(bounds, [*ends.tolist(), len(array)], strict=True)]
