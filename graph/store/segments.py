"""Vectors on disk: immutable segments, and the matrix that they are joined to.

A segment is a file of vectors and of the ids that they belong to, named after the checksum of its bytes: it is written once, whole,
and never changed. An edit writes the vectors that it adds; which rows of the segments are in use is told by a map of rows.

Legend: N rows of a matrix, R rows of its segments one after another, S segments, D dimensions, Q columns of a product.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from graph.disk.npy import write_array
from graph.shared.errors import UserError
from graph.shared.ids import ID_BYTES, has_sum, quick_sum
from graph.shared.types import Floats, IdBytes, Ints
from graph.store.ann import Ann, build_ann
from graph.store.columns.numbers import MovedNumbers, Numbers, appended, changed_numbers, numbers_from, whole_numbers
from graph.store.halves import Held, as_float32, let_go, product

FOLDER, ENDING = "vectors", ".segment"
WRITTEN_ROWS = 8_192
"""Vectors that are gathered at a time to be written."""


@dataclass(frozen=True)
class Segment:
    """Vectors and their ids, in the file of that name; "" while they are in none."""

    vectors_RD: Held
    ids_R: IdBytes
    name: str = ""
    ann: Ann | None = None
    fresh: bool = False
    """Whether no generation has it yet, though it is in a file."""


@dataclass(frozen=True)
class Vectors:
    """A matrix float32[N, D] of vectors that lie in segments. To its users an array that cannot be written to: `vectors @ query`,
    `vectors[rows]`, `len`, `shape`; `numpy.asarray` makes a copy of it where it lies in several segments, or as float16.
    """

    segments: tuple[Segment, ...]
    row_N: Numbers
    """Where each vector is: a row of the segments, counted through all of them."""

    @classmethod
    def of(cls, vectors_ND: Held, ids: Sequence[str] | IdBytes = ()) -> "Vectors":
        """Vectors in memory."""
        ids_N = np.zeros(len(vectors_ND), ID_BYTES)
        ids_N[: len(ids)] = ids
        return cls((Segment(vectors_ND, ids_N),), np.arange(len(vectors_ND)))

    @classmethod
    def join(cls, parts: Sequence["Vectors"]) -> "Vectors":
        """The rows of all parts, one part after another."""
        first = np.cumsum([0, *(part.starts[-1] for part in parts)])
        rows = [whole_numbers(part.row_N) + start for part, start in zip(parts, first, strict=False)]
        return cls(tuple(segment for part in parts for segment in part.segments), np.concatenate(rows))

    @cached_property
    def whole(self) -> bool:
        """Whether this is all of one segment, as it lies."""
        moved = isinstance(self.row_N, MovedNumbers) or len(self.segments) != 1
        return not moved and np.array_equal(self.row_N, np.arange(len(self.segments[0].ids_R)))

    @cached_property
    def starts(self) -> Ints:
        """Where the rows of each segment begin, counted through all of them, and where the last one's end: int64[S + 1]."""
        return np.cumsum([0, *(len(segment.ids_R) for segment in self.segments)])

    @property
    def live_S(self) -> Ints:
        """How many rows of each segment are in use: int64[S]."""
        return -np.diff([*(numbers_from(self.row_N, int(start)) for start in self.starts[:-1]), 0])

    def segment_of(self, row_X: Ints) -> Ints:
        """The segment of rows of the segments."""
        return np.searchsorted(self.starts, row_X, "right") - 1

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.row_N), self.segments[0].vectors_RD.shape[1]

    @property
    def nbytes(self) -> int:
        """Bytes of the vectors."""
        return self.segments[0].vectors_RD.itemsize * len(self) * self.shape[1]

    def __len__(self) -> int:
        return len(self.row_N)

    def __matmul__(self, right: Floats) -> Floats:
        """The products [N] or [N, Q] with a vector or a matrix [D, Q]."""
        if self.whole:
            return product(self.segments[0].vectors_RD, right)
        return np.concatenate([product(segment.vectors_RD, right) for segment in self.segments])[
            whole_numbers(self.row_N)
        ]

    def __getitem__(self, rows: Any) -> Floats:
        """The vectors of rows, given as numpy takes them (a number, a slice, rows in any shape, a mask)."""
        return as_float32(self.held(rows))

    def held(self, rows: Any) -> Held:
        """The vectors of rows as they are kept."""
        if self.whole:
            return np.asarray(self.segments[0].vectors_RD[rows])
        return _gather(
            [segment.vectors_RD for segment in self.segments], self.starts, np.asarray(self.row_N[rows], np.int64)
        )

    def let_go(self) -> None:
        """Give back the memory that reading them took; they are read from their files again when they are asked for."""
        for segment in self.segments:
            let_go(segment.vectors_RD)

    def candidates(self, query_QD: Floats, count: int) -> list[Ints] | None:
        """For each unit vector rows, ascending, that hold the `count` nearest to it but for what ANN indexes miss; None where no segment has one."""
        if all(segment.ann is None for segment in self.segments):
            return None
        found: list[list[Ints]] = [[] for _ in query_QD]
        for segment, start, live in zip(self.segments, self.starts.tolist(), self._live, strict=False):
            row_R = self._row_of_place[start : start + len(segment.ids_R)]
            for rows, places in zip(found, _nearest_places(segment, query_QD, count, row_R, live), strict=True):
                rows.append(row_R[places][row_R[places] >= 0])
        return [np.sort(np.concatenate(rows)) for rows in found]

    @cached_property
    def _row_of_place(self) -> Ints:
        """The row of each row of the segments, −1 for what was deleted: int64[R]."""
        row_R = np.full(self.starts[-1], -1, np.int64)
        row_R[whole_numbers(self.row_N)] = np.arange(len(self))
        return row_R

    @cached_property
    def _live(self) -> list[bytes | None]:
        """Of each segment, a bit for each of its rows, set where it is in use; None where all are."""
        ends = np.cumsum([len(segment.ids_R) for segment in self.segments])[:-1]
        used = [part >= 0 for part in np.split(self._row_of_place, ends)]
        return [None if part.all() else np.packbits(part, bitorder="little").tobytes() for part in used]

    def ids(self, rows: Ints) -> IdBytes:
        """The ids of the vectors in rows."""
        return _gather([segment.ids_R for segment in self.segments], self.starts, self.row_N[rows])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Floats:
        return np.asarray(self[:], dtype)

    def only(self, rows: Ints) -> "Vectors":
        """The given rows in memory: shared where they lie together in one segment, else a copy."""
        together = self.whole and len(rows) > 0 and bool((np.diff(rows) == 1).all())
        return Vectors.of(self.held(slice(rows[0], rows[-1] + 1) if together else rows))


def _nearest_places(segment: Segment, query_QD: Floats, count: int, row_R: Ints, live: bytes | None) -> Iterator[Ints]:
    """For each query, where in a segment candidates for the nearest rows lie."""
    if segment.ann is not None:
        yield from (places[places >= 0] for places in segment.ann.search(query_QD, count, live))
        return
    for query_D in query_QD:
        cosines_R = np.where(row_R >= 0, product(segment.vectors_RD, query_D), -np.inf)
        yield np.argpartition(-cosines_R, min(count, len(row_R)) - 1)[:count] if len(row_R) else row_R


Rows = Floats | Vectors
"""A matrix [N, D] in memory or in segments."""


def save_vectors(folder: Path, field: str, vectors: Vectors, merge_factor: int, compact: bool = False) -> Vectors:
    """The same vectors with all of them in files: what is in none yet is written into a new segment, in order.

    With it goes what `segments_to_merge` says, a fresh segment too; if `compact`, everything is in one segment, in order. UserError when a
    segment that would be written again is damaged.
    """
    rows_S = [len(segment.ids_R) for segment in vectors.segments]
    live_S = vectors.live_S.tolist()
    new = {place for place, segment in enumerate(vectors.segments) if not segment.name or segment.fresh}
    in_files = all(segment.name for segment in vectors.segments)
    if compact:
        again = set() if vectors.whole and in_files else set(range(len(rows_S)))
    else:
        again = segments_to_merge(rows_S, live_S, new, merge_factor)
        again |= new if again or not in_files else set()
    kept = [place for place in range(len(rows_S)) if place not in again]
    segments = [vectors.segments[place] for place in kept]
    end = sum(rows_S[place] for place in kept)
    if again == new and kept == list(range(len(kept))):
        rows_R, row_N = appended(vectors.row_N, end)
    else:
        rows_R, row_N = _moved_together(vectors, kept)
    if len(rows_R) or not kept:
        for place in again - new:
            if live_S[place]:
                check_segment(folder, vectors.segments[place].name)
        segments.append(write_segment(folder, field, vectors.ids(rows_R), lambda part: vectors.held(rows_R[part])))
    return Vectors(tuple(segments), row_N)


def _moved_together(vectors: Vectors, kept: Sequence[int]) -> tuple[Ints, Numbers]:
    """The rows that are in none of the segments that are kept, and where each row is when those, then these, lie end to end."""
    row_N, kept_K = np.array(whole_numbers(vectors.row_N)), np.array(kept, np.int64)
    moved_S, segment_N = np.zeros(len(vectors.segments), np.int64), vectors.segment_of(row_N)
    ends = np.cumsum([0, *(len(vectors.segments[place].ids_R) for place in kept)])
    moved_S[kept_K] = ends[:-1] - vectors.starts[kept_K]
    row_N += moved_S[segment_N]
    rows_R = np.flatnonzero(~np.isin(segment_N, kept_K))
    row_N[rows_R] = ends[-1] + np.arange(len(rows_R))
    return rows_R, changed_numbers(vectors.row_N, row_N)


def with_ann(folder: Path, vectors: Vectors, ann_rows: int, merge_factor: int, compact: bool = False) -> Vectors:
    """The same vectors, with an ANN index for each segment that is to have one; if `compact`, for no other."""
    due = segments_to_index([len(segment.ids_R) for segment in vectors.segments], len(vectors), ann_rows, merge_factor)
    segments = list(vectors.segments)
    for place, segment in enumerate(segments):
        if place in due and segment.ann is None:
            segments[place] = replace(segment, ann=build_ann(folder / FOLDER, segment.name, segment.vectors_RD))
        elif compact and place not in due:
            segments[place] = replace(segment, ann=None)
    return Vectors(tuple(segments), vectors.row_N)


def has_ann_due(vectors: Vectors, ann_rows: int, merge_factor: int) -> bool:
    """Whether just the segments that are to have an ANN index have one."""
    due = segments_to_index([len(segment.ids_R) for segment in vectors.segments], len(vectors), ann_rows, merge_factor)
    return due == {place for place, segment in enumerate(vectors.segments) if segment.ann is not None}


def segments_to_index(rows_S: Sequence[int], live: int, ann_rows: int, merge_factor: int) -> set[int]:
    """Which segments have an ANN index: of at least `ann_rows` vectors in use all but segments of less than `ann_rows / merge_factor`.

    There are few of those (`segments_to_merge`), so no more than about `ann_rows` vectors are compared one by one.

    >>> segments_to_index([90, 20, 1], 100, 100, 8), segments_to_index([90, 20, 1], 99, 100, 8)
    ({0, 1}, set())
    """
    return {place for place, rows in enumerate(rows_S) if live >= ann_rows and rows * merge_factor >= ann_rows and rows}


def segments_to_merge(
    rows_S: Sequence[int], live_S: Sequence[int], new: Collection[int], merge_factor: int
) -> set[int]:
    """Which segments are written again: those of which more than half is gone, and smaller ones than `merge_factor` times what is
    written, when they would be that many with it. So there are few: some `merge_factor` of each order of size.

    >>> segments_to_merge([100, 1, 1, 1], [100, 1, 1, 1], {3}, 3), segments_to_merge([100, 8], [49, 8], set(), 3)
    ({1, 2}, {0})
    """
    again = {
        place for place, (rows, live) in enumerate(zip(rows_S, live_S, strict=True)) if 2 * live < rows or not live
    }
    again -= set(new)
    while written := sum(live_S[place] for place in again.union(new)):
        near = {place for place, rows in enumerate(rows_S) if rows < merge_factor * written} - again - set(new)
        if len(near) + 1 < merge_factor:
            break
        again |= near
    return again


def open_vectors(folder: Path, names: Sequence[str], row_N: Ints, ann: Mapping[str, Ann] | None = None) -> Vectors:
    """Vectors in the files of an index, memory-mapped; `ann` has the ANN indexes of segments by name."""
    segments = (open_segment(folder / FOLDER / name) for name in names)
    return Vectors(tuple(replace(segment, ann=(ann or {}).get(segment.name)) for segment in segments), row_N)


def open_segment(file: Path) -> Segment:
    """A segment's file, memory-mapped: vectors, then ids, each as numpy saves an array."""
    with file.open("rb") as opened:
        vectors_RD = _map_array(opened)
        return Segment(vectors_RD, _map_array(opened), file.name)


def check_segment(folder: Path, name: str) -> None:
    """UserError when a segment is not as it was written."""
    if not is_sound(folder / FOLDER / name):
        found = f"{folder / FOLDER / name}: not the bytes that were written"
        raise UserError(found, "a sound segment", f"run: modegraph repair {folder}")


def is_sound(file: Path) -> bool:
    """Whether a segment's bytes are those that its name tells."""
    return has_sum(file, file.stem.rpartition("-")[2])


def write_segment(
    folder: Path, field: str, ids_R: IdBytes, vectors_of: Callable[[slice], Held], at_a_time: int = WRITTEN_ROWS
) -> Segment:
    """The vectors of ids as a new segment; so many are held in memory at a time."""
    partial = folder / FOLDER / f"{field}-{uuid4().hex}.partial"
    partial.parent.mkdir(exist_ok=True)
    with partial.open("wb") as opened:
        for start in range(0, max(1, len(ids_R)), at_a_time):
            batch = vectors_of(slice(start, start + at_a_time))
            dtype = batch.dtype.newbyteorder("<")
            if start == 0:
                shape = len(ids_R), batch.shape[1]
                head = {"descr": dtype.str, "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(opened, head)
            opened.write(np.ascontiguousarray(batch, dtype).data)
        write_array(opened, ids_R)
    file = partial.with_name(f"{field}-{quick_sum(partial)}{ENDING}")
    partial.replace(file)
    return open_segment(file)


def _gather(parts_S: Sequence[NDArray[Any]], starts: Ints, row_X: Ints) -> NDArray[Any]:
    """Rows, in any shape, of arrays that stand one after another, each from its start on."""
    place_X = np.searchsorted(starts, row_X, "right") - 1
    found = np.empty((*row_X.shape, *parts_S[0].shape[1:]), parts_S[0].dtype)
    for place, part in enumerate(parts_S):
        here_X = place_X == place
        if here_X.any():
            found[here_X] = part[row_X[here_X] - starts[place]]
    return found


def _map_array(opened: Any) -> Any:
    """The array that begins where a file is read, mapped; the file is read on after it."""
    np.lib.format.read_magic(opened)
    shape, _, dtype = np.lib.format.read_array_header_1_0(opened)
    start = opened.tell()
    if 0 in shape:
        return np.zeros(shape, dtype)
    array = np.memmap(opened, dtype, "r", start, shape)
    opened.seek(start + array.nbytes)
    return np.asarray(array)
