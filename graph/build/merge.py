"""Rows of the last generation and new ones, brought into one order: what an edit leaves as it was is moved, not made again.

Legend: L rows of the last generation, N rows now, K new ones.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graph.shared.types import Ints
from graph.store.blocks import Entries, edited
from graph.store.segments import IdBytes
from graph.store.strings import Strings, id_bytes, rows_in_order


@dataclass(frozen=True)
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

    @property
    def new_K(self) -> Ints:
        """The rows of the new ones."""
        return np.flatnonzero(self.last_N < 0)

    def numbers(self, last_L: Ints, new_K: Ints) -> Ints:
        """A column of whole numbers."""
        numbers_N = np.empty(len(self.last_N), np.int64)
        numbers_N[self.last_N >= 0] = last_L[self.place_L >= 0]
        numbers_N[self.new_K] = new_K
        return numbers_N


@dataclass(frozen=True)
class Named:
    """Rows that are named and ordered by an id, the hash of their text."""

    merge: Merge
    ids: Strings
    texts: Strings


def merge_by_id(
    last_ids: Strings, last_texts: Strings, kept_L: NDArray[np.bool_], found: IdBytes, text_of: Callable[[str], str]
) -> Named:
    """The rows that stay with those whose ids were found, which may be among them; `text_of` gives the text of a new id."""
    last_L, found = id_bytes(last_ids), np.unique(found)
    at_F = np.searchsorted(last_L, found)
    known_F = rows_in_order(last_L, found) >= 0
    merge, _ = Merge.of_found(kept_L, at_F, known_F)
    new = Strings.of_ids(found[~known_F])
    texts = Strings.of(map(text_of, new))
    return Named(merge, last_ids.splice(merge.last_N, new), last_texts.splice(merge.last_N, texts))


def edited_block(block: sp.csr_array, rows: Merge, columns: Merge, added: Entries) -> sp.csr_array:
    """A block as it is now, with entries of new or emptied rows and columns added (graph/store/blocks.py)."""
    return edited(block, rows.place_L, columns.place_L, (len(rows.last_N), len(columns.last_N)), added)


@dataclass(frozen=True)
class Keyed:
    """From a table's integer keys to rows: keys in order, and the row of each."""

    key_K: Ints
    row_K: Ints

    @classmethod
    def of(cls, keys: Ints, ids: IdBytes, now: Strings) -> "Keyed":
        """The keys of rows with these ids among the rows as they are now, in order of their ids."""
        order = np.argsort(keys)
        return cls(keys[order], rows_in_order(now, ids)[order])

    def rows(self, keys_X: Ints) -> Ints:
        """The row of each key, all of which are known."""
        return self.row_K[np.searchsorted(self.key_K, keys_X)]


def rows_with(sorted_texts: Strings, texts: Sequence[str]) -> NDArray[np.bool_]:
    """Which rows of a column in order are among the texts: bool[L].

    >>> rows_with(Strings.of(["a", "c"]), ["b", "c", "d"]).tolist()
    [False, True]
    """
    among_L = np.zeros(len(sorted_texts), bool)
    for text in texts:
        row = bisect_left(sorted_texts, text)
        if row < len(sorted_texts) and sorted_texts[row] == text:
            among_L[row] = True
    return among_L


def touched(block: sp.csr_array, rows_L: NDArray[np.bool_]) -> Ints:
    """The columns that these rows of a block have entries in, in order."""
    return np.unique(block[np.flatnonzero(rows_L), :].indices)
