"""A column of texts, and lookups of ids. Legend: N ids to look up, K known ids."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from graph.shared.ids import ID_BYTES
from graph.types import IdBytes

MAX_COMPARED_IDS = 8
"""Up to this many ids are each compared with all known ids, which is faster than sorting the known ids."""
MAX_IDS_READ_SINGLY = 256
"""Up to this many ids are read one by one, without assembling their column."""
DECODED_ROWS = 4_096
"""The number of texts that iteration copies at a time."""


@dataclass(frozen=True)
class Strings:
    """A column of texts: concatenated UTF-8 bytes, and the start of each text. `strings[3]` decodes one text.

    >>> Strings.of(["a", "né", ""])[1]
    'né'
    """

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Strings":
        """A column of the given texts; `texts` may be a generator, and is read once."""
        data, starts = bytearray(), array("q", [0])
        for text in texts:
            data += text.encode("utf-8", "surrogatepass")
            starts.append(len(data))
        return cls(np.frombuffer(data, np.uint8), np.array(starts, np.int64))

    @classmethod
    def of_ids(cls, ids: IdBytes) -> "Strings":
        """A column of ids, which all have the same length."""
        return cls(ids.view(np.uint8), np.arange(len(ids) + 1) * ids.itemsize)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __iter__(self) -> Iterator[str]:
        for first in range(0, len(self), DECODED_ROWS):
            starts = self.starts[first : first + DECODED_ROWS + 1]
            part, ends = self.data[starts[0] : starts[-1]].tobytes(), (starts - starts[0]).tolist()
            yield from (part[start:end].decode("utf-8", "surrogatepass") for start, end in pairwise(ends))

    def take(self, rows: NDArray[np.int64]) -> "Strings":
        """The texts of the given rows, in that order; consecutive rows share the bytes of this column."""
        if is_consecutive(rows):
            return Strings(self.data, self.starts[rows[0] : rows[-1] + 2])
        return Strings.of([self[int(row)] for row in rows])

    def splice(self, rows: NDArray[np.int64], new: "Strings") -> "Strings":
        """The texts of the given rows, in that order; for each −1, the next text of `new`. Bytes are copied run by run."""
        if not (rows >= 0).any():
            return new
        parts: list[NDArray[np.uint8]] = []
        starts = np.zeros(len(rows) + 1, np.int64)
        end = added = 0
        continues = np.where(rows[:-1] >= 0, rows[1:] == rows[:-1] + 1, rows[1:] < 0)
        breaks = np.flatnonzero(~continues) + 1
        for first, stop in pairwise([0, *breaks.tolist(), len(rows)]):
            column, row = (self, int(rows[first])) if rows[first] >= 0 else (new, added)
            added += 0 if rows[first] >= 0 else stop - first
            bounds = column.starts[row : row + stop - first + 1]
            parts.append(column.data[bounds[0] : bounds[-1]])
            starts[first + 1 : stop + 1] = bounds[1:] + (end - bounds[0])
            end += len(parts[-1])
        return Strings(np.concatenate(parts), starts)

    def rows_where(self, choose: Callable[["Strings"], NDArray[np.int64]]) -> NDArray[np.int64]:
        """The rows, ascending, that `choose` returns for this column. `choose` must judge each row by the text of that row alone."""
        return choose(self)

    def rows_with(self, matches: Callable[[NDArray[np.uint8]], NDArray[np.bool_]]) -> NDArray[np.int64]:
        """The rows, ascending, with at least one byte that matches."""

        def choose(part: Strings) -> NDArray[np.int64]:
            begin, end = part.starts[0], part.starts[-1]
            matching = np.flatnonzero(matches(part.data[begin:end])) + begin
            return np.unique(np.searchsorted(part.starts, matching, side="right") - 1)

        return self.rows_where(choose)

    def __getitem__(self, row: int) -> str:
        row = range(len(self))[row]
        return self.data[self.starts[row] : self.starts[row + 1]].tobytes().decode("utf-8", "surrogatepass")


Ids = Strings | Sequence[str] | IdBytes
"""Content hashes, in any representation."""


def id_bytes(ids: Ids) -> IdBytes:
    """Ids as an array of 32-byte values; the ids of a column are not copied."""
    if isinstance(ids, Strings):
        return np.asarray(ids.data[ids.starts[0] : ids.starts[-1]].view(ID_BYTES))
    return np.asarray(ids, ID_BYTES)


def ids_at(ids: Ids, rows: NDArray[np.int64]) -> IdBytes:
    """The ids of some rows; a few are read one by one, because assembling a moved column (moved.py) takes longer."""
    return id_bytes([ids[row] for row in rows.tolist()]) if len(rows) <= MAX_IDS_READ_SINGLY else id_bytes(ids)[rows]


@dataclass(frozen=True)
class KnownIds:
    """Known ids, in which other ids are looked up, and their sort order."""

    id_K: IdBytes
    order_K: NDArray[np.int64] | None
    """None if the ids are sorted."""

    @classmethod
    def of(cls, ids: Ids) -> "KnownIds":
        """Ids in any order."""
        id_K = id_bytes(ids)
        return cls(id_K, np.argsort(id_K))

    def rows(self, ids: Ids) -> NDArray[np.int64]:
        """The row of each id among the known ones, −1 if absent."""
        id_N = id_bytes(ids)
        if len(self.id_K) == 0:
            return np.full(len(id_N), -1, np.int64)
        position_N = np.minimum(np.searchsorted(self.id_K, id_N, sorter=self.order_K), len(self.id_K) - 1)
        row_N = position_N if self.order_K is None else self.order_K[position_N]
        return np.where(self.id_K[row_N] == id_N, row_N, -1)


def rows_among(known: Ids, ids: Ids) -> NDArray[np.int64]:
    """The row of each id among the known ones, −1 if absent.

    >>> rows_among(["a", "b"], ["b", "c", "a"]).tolist()
    [1, -1, 0]
    """
    known_K, id_N = id_bytes(known), id_bytes(ids)
    if len(id_N) <= MAX_COMPARED_IDS and len(known_K):
        equal_NK = [known_K == identity for identity in id_N]
        return np.array([equal_K.argmax() if equal_K.any() else -1 for equal_K in equal_NK], np.int64)
    return KnownIds.of(known_K).rows(id_N)


def rows_among_sorted(known: Ids, ids: Ids) -> NDArray[np.int64]:
    """`rows_among` for sorted known ids."""
    return KnownIds(id_bytes(known), None).rows(ids)


def is_consecutive(rows: NDArray[np.int64]) -> bool:
    """Whether there is at least one row and each row is one more than the row before it.

    >>> is_consecutive(np.array([3, 4, 5])), is_consecutive(np.array([3, 5])), is_consecutive(np.array([], int))
    (True, False, False)
    """
    return len(rows) > 0 and bool((np.diff(rows) == 1).all())
