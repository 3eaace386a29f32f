"""A matrix of vectors in segments, which are immutable files; and the distribution of its cosines.

An edit writes a segment with the vectors that it adds; a column of row numbers records which rows of the segments are in use. A segment is a file of
vectors and their ids, named after the checksum of its bytes. Retrieval normalises similarities by the quantiles of cosines.
Legend: N rows of a matrix, R rows of its segments, concatenated, S segments, D dimensions, Q columns of a product, X requested rows,
B pairs, Z quantiles."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from graph.errors import DamagedFile, UserError
from graph.shared.ids import ID_BYTES, is_intact, quick_sum
from graph.store.ann import Ann
from graph.store.columns.column_files import write_array
from graph.store.columns.moved import MovedNumbers, Numbers, assembled, count_at_least
from graph.store.columns.strings import is_consecutive
from graph.store.float16 import StoredVectors, as_float32, product, release_memory
from graph.types import Floats, IdBytes, Ints

SEGMENT_FOLDER, SEGMENT_ENDING = "vectors", ".segment"
WRITTEN_ROWS = 8_192
"""The number of vectors in memory at a time while a segment is written."""


@dataclass(frozen=True)
class Segment:
    """Vectors and their ids, in the file `name` ("" if they are only in memory)."""

    vectors_RD: StoredVectors
    ids_R: IdBytes
    name: str = ""
    ann: Ann | None = None
    fresh: bool = False
    """Whether the segment is in a file but not yet part of a generation."""


def open_segment(file: Path) -> Segment:
    """The segment in a file, memory-mapped: vectors, then ids, each in numpy's format."""
    with file.open("rb") as opened:
        vectors_RD = _map_array(opened)
        return Segment(vectors_RD, _map_array(opened), file.name)


def check_segment(folder: Path, name: str) -> None:
    """UserError when a segment is damaged."""
    if not is_intact(folder / SEGMENT_FOLDER / name):
        found = f"{folder / SEGMENT_FOLDER / name}: its contents have changed"
        raise UserError(found, "an intact segment", f"run: modegraph repair {folder}")


def write_segment(
    folder: Path,
    field: str,
    ids_R: IdBytes,
    vectors_of: Callable[[slice], StoredVectors],
    at_a_time: int = WRITTEN_ROWS,
) -> Segment:
    """Write the vectors of ids to a new segment, with at most `at_a_time` of them in memory."""
    partial = folder / SEGMENT_FOLDER / f"{field}-{uuid4().hex}.partial"
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
    file = partial.with_name(f"{field}-{quick_sum(partial)}{SEGMENT_ENDING}")
    partial.replace(file)
    return open_segment(file)


def _map_array(opened: Any) -> Any:
    """The array at the current position of a file, memory-mapped; the position moves past it."""
    np.lib.format.read_magic(opened)
    shape, _, dtype = np.lib.format.read_array_header_1_0(opened)
    start = opened.tell()
    if 0 in shape:
        return np.zeros(shape, dtype)
    array = np.memmap(opened, dtype, "r", start, shape)
    opened.seek(start + array.nbytes)
    return np.asarray(array)


@dataclass(frozen=True)
class Vectors:
    """A matrix float32[N, D] of vectors in segments, used like a read-only array: `vectors @ query`, `vectors[rows]`, `len`, `shape`.
    `numpy.asarray` copies it unless its rows are exactly the rows of one float32 segment, in order.
    """

    segments: tuple[Segment, ...]
    row_N: Numbers
    """The position of each vector: a row of the concatenated segments."""

    @classmethod
    def of(cls, vectors_ND: StoredVectors, ids: Sequence[str] | IdBytes = ()) -> "Vectors":
        """Vectors in memory."""
        ids_N = np.zeros(len(vectors_ND), ID_BYTES)
        ids_N[: len(ids)] = ids
        return cls((Segment(vectors_ND, ids_N),), np.arange(len(vectors_ND)))

    @classmethod
    def join(cls, parts: Sequence["Vectors"]) -> "Vectors":
        """The rows of all parts, concatenated."""
        first = np.cumsum([0, *(part.starts[-1] for part in parts)])
        rows = [assembled(part.row_N) + start for part, start in zip(parts, first, strict=False)]
        return cls(tuple(segment for part in parts for segment in part.segments), np.concatenate(rows))

    @cached_property
    def is_one_segment(self) -> bool:
        """Whether the rows are exactly the rows of a single segment, in order."""
        if isinstance(self.row_N, MovedNumbers) or len(self.segments) != 1:
            return False
        return np.array_equal(self.row_N, np.arange(len(self.segments[0].ids_R)))

    @cached_property
    def starts(self) -> Ints:
        """The first row of each segment in the concatenated segments, and their end: int64[S + 1]."""
        return np.cumsum([0, *(len(segment.ids_R) for segment in self.segments)])

    @property
    def live_S(self) -> Ints:
        """The number of rows of each segment that are in use: int64[S]."""
        return -np.diff([*(count_at_least(self.row_N, int(start)) for start in self.starts[:-1]), 0])

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
        if self.is_one_segment:
            return product(self.segments[0].vectors_RD, right)
        products = np.concatenate([product(segment.vectors_RD, right) for segment in self.segments])
        return np.asarray(products[assembled(self.row_N)])

    def __getitem__(self, rows: Any) -> Floats:
        """The vectors of the given rows: an index, a slice, an array of indices of any shape or a mask, as in numpy."""
        return as_float32(self.stored(rows))

    def stored(self, rows: Any) -> StoredVectors:
        """The vectors of the given rows in their stored type."""
        if self.is_one_segment:
            return np.asarray(self.segments[0].vectors_RD[rows])
        row_X = np.asarray(self.row_N[rows], np.int64)
        return _gather([segment.vectors_RD for segment in self.segments], self.starts, row_X)

    def release_memory(self) -> None:
        """Release the memory of mapped pages; they are read from the files again when accessed."""
        for segment in self.segments:
            release_memory(segment.vectors_RD)

    def candidates(self, query_QD: Floats, count: int) -> list[Ints] | None:
        """For each query (a unit vector), rows in ascending order that include its `count` nearest, apart from any that an ANN index misses.

        None if no segment has an ANN index.
        """
        if all(segment.ann is None for segment in self.segments):
            return None
        candidates_Q: list[list[Ints]] = [[] for _ in query_QD]
        for segment, start, live in zip(self.segments, self.starts.tolist(), self._live, strict=False):
            row_R = self._row_of_place[start : start + len(segment.ids_R)]
            for rows, places in zip(candidates_Q, _nearest_places(segment, query_QD, count, row_R, live), strict=True):
                rows.append(row_R[places][row_R[places] >= 0])
        return [np.sort(np.concatenate(rows)) for rows in candidates_Q]

    @cached_property
    def _row_of_place(self) -> Ints:
        """The row of the matrix for each row of the segments, −1 for deleted rows: int64[R]."""
        row_R = np.full(self.starts[-1], -1, np.int64)
        row_R[assembled(self.row_N)] = np.arange(len(self))
        return row_R

    @cached_property
    def _live(self) -> list[bytes | None]:
        """For each segment, a bit per row that is set if the row is in use; None if all are."""
        in_use = [part >= 0 for part in np.split(self._row_of_place, self.starts[1:-1])]
        return [None if part.all() else np.packbits(part, bitorder="little").tobytes() for part in in_use]

    def ids(self, rows: Ints) -> IdBytes:
        """The ids of the vectors in the given rows."""
        return _gather([segment.ids_R for segment in self.segments], self.starts, self.row_N[rows])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Floats:
        return np.array(self[:], dtype, copy=copy)

    def only(self, rows: Ints) -> "Vectors":
        """The given rows in memory: shared if they are consecutive rows of a single segment, else copied."""
        consecutive = self.is_one_segment and is_consecutive(rows)
        return Vectors.of(self.stored(slice(rows[0], rows[-1] + 1) if consecutive else rows))


Matrix = Floats | Vectors
"""A matrix [N, D] in memory or in segments."""


def _nearest_places(segment: Segment, query_QD: Floats, count: int, row_R: Ints, live: bytes | None) -> Iterator[Ints]:
    """For each query, the positions, within a segment, of the candidates for its nearest rows."""
    if segment.ann is not None:
        try:
            yield from [places[places >= 0] for places in segment.ann.search(query_QD, count, live)]
            return
        except (DamagedFile, FileNotFoundError, RuntimeError):
            # A later edit may have removed the file of a generation that is still being read. RuntimeError is that of faiss.
            if segment.ann.file.exists():
                raise
    for query_D in query_QD:
        cosines_R = np.where(row_R >= 0, product(segment.vectors_RD, query_D), -np.inf)
        yield np.argpartition(-cosines_R, min(count, len(row_R)) - 1)[:count] if len(row_R) else row_R


def _gather(parts_S: Sequence[NDArray[Any]], starts: Ints, row_X: Ints) -> NDArray[Any]:
    """The rows `row_X`, in any shape, of concatenated arrays that begin at `starts`."""
    place_X = np.searchsorted(starts, row_X, "right") - 1
    values = np.empty((*row_X.shape, *parts_S[0].shape[1:]), parts_S[0].dtype)
    for place, part in enumerate(parts_S):
        here_X = place_X == place
        if here_X.any():
            values[here_X] = part[row_X[here_X] - starts[place]]
    return values


QUANTILE_LEVELS_Z: NDArray[np.float64] = np.concatenate(
    [np.arange(100) / 100, 0.99 + np.arange(1, 10) / 1000, [0.9999, 1.0]]
)
"""Shares of the pairs: in steps of 0.01, then finer towards the most similar pairs."""
SAMPLED_PAIRS, PAIR_SEED = 16_384, 0
PAIRS_PER_BLOCK = 1024
"""The number of pairs multiplied at a time: their vectors fit into the processor's cache."""
COSINE_DIGITS = 5
"""Decimal places of cosines: rounding removes the effect of the order of summation."""


def cosine_quantiles(vectors_ND: Matrix) -> Floats:
    """Quantiles, at QUANTILE_LEVELS_Z, of the cosines of SAMPLED_PAIRS pairs of distinct rows, sampled with a fixed seed: float32[Z].

    Zeros for fewer than two rows. The same rows in the same order give the same bytes, whatever their segments.
    """
    count = len(vectors_ND)
    if count < 2:
        return np.zeros(len(QUANTILE_LEVELS_Z), np.float32)
    generator = np.random.default_rng(PAIR_SEED)
    pair_B = np.arange(SAMPLED_PAIRS)
    first_B = generator.permutation(pair_B * count // SAMPLED_PAIRS if count > SAMPLED_PAIRS else pair_B % count)
    second_B = (first_B + generator.integers(1, count, SAMPLED_PAIRS)) % count
    blocks = SAMPLED_PAIRS // PAIRS_PER_BLOCK
    pairs = zip(np.split(first_B, blocks), np.split(second_B, blocks), strict=True)
    cosines = [np.einsum("bd,bd->b", vectors_ND[one], vectors_ND[other], dtype=np.float64) for one, other in pairs]
    if isinstance(vectors_ND, Vectors):
        vectors_ND.release_memory()
    return np.asarray(np.quantile(np.concatenate(cosines), QUANTILE_LEVELS_Z).round(COSINE_DIGITS), np.float32)
