"""Rows of the last generation and new ones, brought into one order: what an edit leaves as it was is moved, not made again.

Legend: L rows of the last generation, N rows now, K new ones.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from graph.shared.types import IdBytes, Ints
from graph.store.columns.merge import Merge
from graph.store.columns.moved import Block, find_ids, ids_below, moved_strings, taken
from graph.store.columns.strings import Strings


@dataclass(frozen=True)
class Named:
    """Rows that are named and ordered by an id, the hash of their text."""

    merge: Merge
    ids: Strings
    texts: Strings


def merge_by_id(
    last_ids: Strings, last_texts: Strings, gone_G: Ints, found: IdBytes, text_of: Callable[[str], str]
) -> Named:
    """The rows that stay, all but `gone_G`, with those whose ids were found, which may be among them or the gone ones; `text_of` gives the
    text of a new id.
    """
    found = np.unique(found)
    at_F, known_F = ids_below(last_ids, found), find_ids(last_ids, found) >= 0
    merge, _ = Merge.of_found(len(last_ids), gone_G, at_F, known_F)
    new = Strings.of_ids(found[~known_F])
    texts = Strings.of(map(text_of, new))
    return Named(merge, moved_strings(last_ids, merge, new), moved_strings(last_texts, merge, texts))


@dataclass(frozen=True)
class Keyed:
    """From a table's integer keys to rows: keys in order, and the row of each."""

    key_K: Ints
    row_K: Ints

    @classmethod
    def of(cls, keys: Ints, ids: IdBytes, now: Strings) -> "Keyed":
        """The keys of rows with these ids among the rows as they are now, in order of their ids."""
        order = np.argsort(keys)
        return cls(keys[order], find_ids(now, ids)[order])

    def rows(self, keys_X: Ints) -> Ints:
        """The row of each key, all of which are known."""
        return self.row_K[np.searchsorted(self.key_K, keys_X)]


def rows_with(sorted_texts: Strings, texts: Sequence[str]) -> Ints:
    """Which rows of a column in order are among the texts, in order.

    >>> rows_with(Strings.of(["a", "c"]), ["d", "c", "b"]).tolist()
    [1]
    """
    rows = [(bisect_left(sorted_texts, text), text) for text in texts]
    return np.unique(
        np.array([row for row, text in rows if row < len(sorted_texts) and sorted_texts[row] == text], np.int64)
    )


def touched(block: Block, rows_L: Ints) -> Ints:
    """The columns that these rows of a block have entries in, in order."""
    return np.unique(taken(block, rows_L).indices).astype(np.int64)
