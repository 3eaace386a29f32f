"""A matrix of vectors that lie in segments, files that are written once and never changed; and how its cosines are spread.

An edit writes a segment of the vectors that it adds, and a map of rows tells which rows are in use. A segment is a file of vectors and of the
ids that they belong to, named after the checksum of its bytes. Quantiles of cosines are what retrieval measures similarity by.
Legend: N rows of a matrix, R rows of its segments one after another, S segments, D dimensions, Q columns of a product, B pairs, Z quantiles."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from graph.errors import UserError
from graph.shared.ids import ID_BYTES, has_sum, quick_sum
from graph.store.ann import Ann
from graph.store.columns.column_files import write_array
from graph.store.columns.moved import MovedNumbers, Numbers, numbers_from, whole_numbers
from graph.store.float16 import StoredVectors, as_float32, let_go, product
from graph.types import Floats, IdBytes, Ints

SEGMENT_FOLDER, SEGMENT_ENDING = "vectors", ".segment"
WRITTEN_ROWS = 8_192
"""Vectors that are gathered at a time to be written."""


@dataclass(frozen=True)
class Segment:
    """Vectors and their ids, in the file of that name; "" while they are in none."""

    vectors_RD: StoredVectors
    ids_R: IdBytes
    name: str = ""
    ann: Ann | None = None
    fresh: bool = False
    """Whether no generation has it yet, though it is in a file."""


def open_segment(file: Path) -> Segment:
    """A segment's file, memory-mapped: vectors, then ids, each as numpy saves an array."""
    with file.open("rb") as opened:
        vectors_RD = _map_array(opened)
        return Segment(vectors_RD, _map_array(opened), file.name)


def check_segment(folder: Path, name: str) -> None:
    """UserError when a segment is not as it was written."""
    if not segment_is_sound(folder / SEGMENT_FOLDER / name):
        found = f"{folder / SEGMENT_FOLDER / name}: not the bytes that were written"
        raise UserError(found, "a sound segment", f"run: modegraph repair {folder}")


def segment_is_sound(file: Path) -> bool:
    """Whether a segment's bytes are those that its name tells."""
    return has_sum(file, file.stem.rpartition("-")[2])


def write_segment(
    folder: Path,
    field: str,
    ids_R: IdBytes,
    vectors_of: Callable[[slice], StoredVectors],
    at_a_time: int = WRITTEN_ROWS,
) -> Segment:
    """The vectors of ids as a new segment; so many are held in memory at a time."""
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
    """The array that begins where a file is read, mapped; the file is read on after it."""
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
    """A matrix float32[N, D] of vectors that lie in segments. To its users an array that cannot be written to: `vectors @ query`,
    `vectors[rows]`, `len`, `shape`; `numpy.asarray` makes a copy of it where it lies in several segments, or as float16.
    """

    segments: tuple[Segment, ...]
    row_N: Numbers
    """Where each vector is: a row of the segments, counted through all of them."""

    @classmethod
    def of(cls, vectors_ND: StoredVectors, ids: Sequence[str] | IdBytes = ()) -> "Vectors":
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

    def held(self, rows: Any) -> StoredVectors:
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


Matrix = Floats | Vectors
"""A matrix [N, D] in memory or in segments."""


def _nearest_places(segment: Segment, query_QD: Floats, count: int, row_R: Ints, live: bytes | None) -> Iterator[Ints]:
    """For each query, where in a segment candidates for the nearest rows lie."""
    if segment.ann is not None:
        yield from (places[places >= 0] for places in segment.ann.search(query_QD, count, live))
        return
    for query_D in query_QD:
        cosines_R = np.where(row_R >= 0, product(segment.vectors_RD, query_D), -np.inf)
        yield np.argpartition(-cosines_R, min(count, len(row_R)) - 1)[:count] if len(row_R) else row_R


def _gather(parts_S: Sequence[NDArray[Any]], starts: Ints, row_X: Ints) -> NDArray[Any]:
    """Rows, in any shape, of arrays that stand one after another, each from its start on."""
    place_X = np.searchsorted(starts, row_X, "right") - 1
    found = np.empty((*row_X.shape, *parts_S[0].shape[1:]), parts_S[0].dtype)
    for place, part in enumerate(parts_S):
        here_X = place_X == place
        if here_X.any():
            found[here_X] = part[row_X[here_X] - starts[place]]
    return found


QUANTILE_LEVELS_Z: NDArray[np.float64] = np.concatenate(
    [np.arange(100) / 100, 0.99 + np.arange(1, 10) / 1000, [0.9999, 1.0]]
)
"""Shares of the pairs: every hundredth, then finer towards the nearest pairs."""
SAMPLED_PAIRS, PAIR_SEED = 16_384, 0
PAIRS_AT_ONCE = 1024
"""Pairs at a time: what they take stays in the processor's cache."""
COSINE_DIGITS = 5
"""Cosines are rounded to so many, so that nothing of the order in which they are summed is kept."""


def cosine_quantiles(vectors_ND: Matrix) -> Floats:
    """The cosines of unlike rows at LEVELS_Z, of at most PAIRS pairs drawn evenly with a fixed seed: float32[Z]; zeros for less than two rows.

    The same rows in the same order give the same bytes, in whatever segments they lie.
    """
    count = len(vectors_ND)
    if count < 2:
        return np.zeros(len(QUANTILE_LEVELS_Z), np.float32)
    draws = np.random.default_rng(PAIR_SEED)
    first_B = draws.permutation(
        np.arange(SAMPLED_PAIRS) * count // SAMPLED_PAIRS if count > SAMPLED_PAIRS else np.arange(SAMPLED_PAIRS) % count
    )
    second_B = (first_B + draws.integers(1, count, SAMPLED_PAIRS)) % count
    blocks = [slice(start, start + PAIRS_AT_ONCE) for start in range(0, SAMPLED_PAIRS, PAIRS_AT_ONCE)]
    cosines = [_products(vectors_ND[first_B[block]], vectors_ND[second_B[block]]) for block in blocks]
    if isinstance(vectors_ND, Vectors):
        vectors_ND.let_go()
    return np.asarray(np.quantile(np.concatenate(cosines), QUANTILE_LEVELS_Z).round(COSINE_DIGITS), np.float32)


def _products(left_BD: Floats, right_BD: Floats) -> NDArray[np.float64]:
    """The inner products of rows with rows, summed in float64."""
    return np.asarray(np.einsum("bd,bd->b", left_BD, right_BD, dtype=np.float64))
