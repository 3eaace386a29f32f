"""Rows of the last generation and new ones, brought into one order.

Legend: L rows of the last generation, N rows now, K new ones, G gone ones.
"""

from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from graph.shared.types import Ints


@dataclass(frozen=True, eq=False)
class Merge:
    """Where each row comes from, and where each row of the last generation is now; those that stay keep their order."""

    last_N: Ints
    """Its row in the last generation; −1 for a new one."""
    place_L: Ints
    """Its row now; −1 where it is gone."""

    @classmethod
    def of(cls, kept_L: NDArray[np.bool_], before_K: Ints) -> "Merge":
        """The rows that stay, and new ones: each in front of a row of the last generation, whether that stays or not (never falling).

        >>> Merge.of(np.array([True, False, True]), np.array([1, 3])).last_N.tolist()
        [0, -1, 2, -1]
        """
        kept_before_L = np.concatenate([[0], np.cumsum(kept_L)])
        last_N = np.insert(np.flatnonzero(kept_L), kept_before_L[before_K], -1)
        place_L = np.full(len(kept_L), -1, np.int64)
        place_L[kept_L] = np.flatnonzero(last_N >= 0)
        return cls(last_N, place_L)

    @classmethod
    def of_found(cls, kept_L: NDArray[np.bool_], at_F: Ints, known_F: NDArray[np.bool_]) -> tuple["Merge", Ints]:
        """The rows that stay with those that were found, and where the found ones are now. What is known is the last row at its place;
        what is not is new, in front of it.
        """
        kept_L = kept_L.copy()
        kept_L[at_F[known_F]] = True
        merge = cls.of(kept_L, at_F[~known_F])
        place_F = np.empty(len(at_F), np.int64)
        place_F[known_F], place_F[~known_F] = merge.place_L[at_F[known_F]], merge.new_K
        return merge, place_F

    @classmethod
    def of_last(cls, last_N: Ints, count: int) -> "Merge":
        """The row that each had among the `count` of the last generation; −1 for a new one."""
        place_L = np.full(count, -1, np.int64)
        place_L[last_N[last_N >= 0]] = np.flatnonzero(last_N >= 0)
        return cls(last_N, place_L)

    @cached_property
    def new_K(self) -> Ints:
        """The rows of the new ones."""
        return np.flatnonzero(self.last_N < 0)

    @property
    def gone_G(self) -> Ints:
        """The rows of the last generation that are gone."""
        return np.flatnonzero(self.place_L < 0)

    @property
    def before_K(self) -> Ints:
        """In front of which row of the last generation each new one stands, as `of` takes it."""
        kept = np.append(np.flatnonzero(self.place_L >= 0), len(self.place_L))
        before_K: Ints = kept[self.new_K - np.arange(len(self.new_K))]
        return before_K

    def then(self, after: "Merge") -> "Merge":
        """This one, then another: from the rows before this one to those after that. Columns of the same rows ask for it again and again."""
        if after not in self._followed:
            self._followed[after] = Merge(_at(self.last_N, after.last_N), _at(after.place_L, self.place_L))
        return self._followed[after]

    @cached_property
    def _followed(self) -> "WeakKeyDictionary[Merge, Merge]":
        return WeakKeyDictionary()

    def numbers(self, last_L: Ints, new_K: Ints) -> Ints:
        """A column of whole numbers."""
        numbers_N = np.empty(len(self.last_N), np.int64)
        numbers_N[self.last_N >= 0] = last_L[self.place_L >= 0]
        numbers_N[self.new_K] = new_K
        return numbers_N


def _at(row_X: Ints, places: Ints) -> Ints:
    """The rows at these places; −1 at −1."""
    found: Ints = np.append(row_X, -1)[places]
    return found
