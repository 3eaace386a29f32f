"""Approximate nearest neighbours (ANN) of the vectors of one segment: an inverted file of faiss (IVF, 8 bits a number), beside the segment.

Vectors lie in lists around centroids; a search looks through the lists nearest to the query. How many is chosen when the file is made: the
fewest with which a sample of the vectors find RECALL_AIMED of their nearest. What is found are candidates: their exact cosines decide.

Legend: R rows of a segment, Q queries, K found for each, X looked at, L lists, D dimensions.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast
from weakref import WeakValueDictionary

import numpy as np

from graph.errors import UserError
from graph.shared.console import say
from graph.shared.ids import has_sum, quick_sum
from graph.store.float16 import StoredVectors, as_float32, batches, gathered
from graph.types import Floats, Ints

ANN_ENDING = ".ann"
LISTS_PER_ROOT = 2
"""Lists, in square roots of rows."""
TRAINED_PER_LIST, TRAINING_ROUNDS = 40, 5
"""Vectors that centroids are found among, by k-means of so many rounds."""
ADDED_ROWS = 8_192
SAMPLED_ROWS, MEASURED_NEAREST = 100, 10
"""Rows whose recall is measured, and of how many nearest."""
RECALL_AIMED, LEAST_RECALL = 0.99, 0.98
MOST_PROBED_SHARE, ALWAYS_PROBED = 4, 64
"""No more than a quarter of the lists is looked through for few nearest, or 64 where that is more."""
MIN_LIST_ROOM = 4
"""Lists looked through hold at least so many times the rows that are asked for."""
SPARE = 100
"""Candidates beyond what is asked for, at most: 8 bits a number order them roughly."""


@dataclass(frozen=True)
class Ann:
    """The ANN index of a segment, in a file beside it: `probes` lists are looked through, which found `recall` of the nearest ten."""

    file: Path
    probes: int
    recall: float

    @cached_property
    def inverted(self) -> Any:
        """The faiss index, its lists memory-mapped. UserError where its bytes are not those that were written; then faiss reads none of them."""
        import faiss

        if not has_sum(self.file, self.file.stem.rpartition("-")[2]):
            remedy = f"run: modegraph repair {self.file.parents[1]}"
            raise UserError(f"{self.file}: not the bytes that were written", "a sound ANN index", remedy)
        return faiss.read_index(str(self.file), faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)

    def search(self, query_QD: Floats, count: int, live: bytes | None = None) -> Ints:
        """Candidates for the `count` nearest of each query, −1 where the segment has fewer: [Q, K ≥ count].

        `live` has a bit for each row of the segment, the lowest first: only rows whose bit is set are found (None: all).
        Where the lists nearest to a query hold too few of them, all are looked through.
        """
        found_QK = _search(self.inverted, query_QD, count, self.probes, live)
        short_Q = found_QK[:, min(count, self.inverted.ntotal) - 1] < 0
        if short_Q.any():
            found_QK[short_Q] = _search(self.inverted, query_QD[short_Q], count, self.inverted.nlist, live)
        return found_QK


_OPENED: "WeakValueDictionary[Path, Ann]" = WeakValueDictionary()


def open_ann(file: Path, probes: int, recall: float) -> Ann:
    """The ANN index in a file, shared by all generations that are open: its bytes are checked once, when it is first asked."""
    return _OPENED.setdefault(file, Ann(file, probes, recall))


def build_ann(folder: Path, segment: str, vectors_RD: StoredVectors) -> Ann:
    """The ANN index of the vectors of a segment, written into `folder`; a line tells where its recall is below LEAST_RECALL."""
    inverted = inverted_file(vectors_RD)
    probes, recall = _choose_probes(inverted, vectors_RD)
    if recall < LEAST_RECALL:
        say(f"{segment}: its ANN index finds {recall:.3f} of the {MEASURED_NEAREST} nearest, less than {LEAST_RECALL}")
    stem = Path(segment).stem
    partial = folder / f"{stem}.partial"
    write_ann(inverted, partial)
    file = folder / f"{stem}-{quick_sum(partial)}{ANN_ENDING}"
    partial.replace(file)
    return Ann(file, probes, recall)


def write_ann(inverted: Any, file: Path) -> None:
    """A faiss index in a file, by Python's own writing: of faiss's (1.15), the last 4 KiB are lost without an error where the disk is full."""
    import faiss

    with file.open("wb") as opened:
        faiss.write_index(inverted, faiss.PyCallbackIOWriter(opened.write))


def inverted_file(vectors_RD: StoredVectors) -> Any:
    """The vectors in lists. The same vectors give the same bytes."""
    import faiss

    rows, dimensions = vectors_RD.shape
    lists = min(rows, math.isqrt(LISTS_PER_ROOT**2 * rows))
    inverted = faiss.IndexIVFScalarQuantizer(
        faiss.IndexFlatIP(dimensions), dimensions, lists, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT
    )
    train_lists(inverted, gathered(vectors_RD, training_rows(rows, lists), ADDED_ROWS))
    for batch_BD in batches(vectors_RD, ADDED_ROWS):
        inverted.add(batch_BD)
    return inverted


def training_rows(rows: int, lists: int) -> Ints:
    """The vectors among which the centroids of so many lists are found: evenly spread."""
    return _spread(rows, TRAINED_PER_LIST * lists)


def train_lists(inverted: Any, sample_SD: Floats) -> None:
    """Find the centroids of an inverted file's lists by k-means, from a fixed seed."""
    means = inverted.cp
    means.niter, means.spherical, means.min_points_per_centroid = TRAINING_ROUNDS, True, 1
    means.max_points_per_centroid = TRAINED_PER_LIST
    inverted.train(sample_SD)


def _choose_probes(inverted: Any, vectors_RD: StoredVectors) -> tuple[int, float]:
    """The fewest lists, of powers of two, with which the sample finds RECALL_AIMED, or else the most; and what it finds with them."""
    rows_Q = _spread(len(vectors_RD), SAMPLED_ROWS)
    query_QD = as_float32(vectors_RD[rows_Q])
    nearest_QK, cosines_QK = _nearest(vectors_RD, rows_Q, query_QD)
    if nearest_QK.shape[1] == 0:
        return 1, 1.0
    most = min(inverted.nlist, max(ALWAYS_PROBED, inverted.nlist // MOST_PROBED_SHARE))
    ranks_QK = _ranks_of_lists(inverted, vectors_RD, query_QD, nearest_QK, most)
    for probes in [*(2**power for power in range(most.bit_length()) if 2**power < most), most]:
        if probes < most and np.mean(ranks_QK < _lists_to_probe(inverted, MEASURED_NEAREST + 1, probes)) < RECALL_AIMED:
            continue
        recall = _recall(inverted, vectors_RD, rows_Q, query_QD, cosines_QK.min(axis=1), probes)
        if recall >= RECALL_AIMED:
            break
    return probes, round(recall, 4)


def _nearest(vectors_RD: StoredVectors, rows_Q: Ints, query_QD: Floats) -> tuple[Ints, Floats]:
    """The NEAREST rows of each sampled one, itself left out, and their cosines, each compared: [Q, K], in no order."""
    count, start = min(MEASURED_NEAREST, len(vectors_RD) - 1), 0
    found_QK, cosines_QK = np.zeros((len(rows_Q), 0), np.int64), np.zeros((len(rows_Q), 0), np.float32)
    for batch_BD in batches(vectors_RD, ADDED_ROWS):
        rows_B = np.arange(start, start + len(batch_BD))
        cosines_QB = np.where(rows_B == rows_Q[:, None], -np.inf, (batch_BD @ query_QD.T).T)
        seen_QX = np.concatenate([found_QK, np.broadcast_to(rows_B, cosines_QB.shape)], axis=1)
        cosines_QX = np.concatenate([cosines_QK, cosines_QB], axis=1)
        best_QK = np.argpartition(-cosines_QX, min(count, cosines_QX.shape[1] - 1), axis=1)[:, :count]
        found_QK = np.take_along_axis(seen_QX, best_QK, axis=1)
        cosines_QK = np.take_along_axis(cosines_QX, best_QK, axis=1)
        start += len(batch_BD)
    return found_QK, cosines_QK


def _ranks_of_lists(inverted: Any, vectors_RD: StoredVectors, query_QD: Floats, row_QK: Ints, most: int) -> Ints:
    """How many lists are nearer to a query than the one that a row lies in, `most` where that many are: int64[Q, K]."""
    lists_QL = inverted.quantizer.search(query_QD, most)[1]
    rows_U, place_QK = np.unique(row_QK, return_inverse=True)
    list_QK = inverted.quantizer.search(as_float32(vectors_RD[rows_U]), 1)[1][place_QK, 0]
    same_QKL = list_QK[:, :, None] == lists_QL[:, None, :]
    return np.where(same_QKL.any(axis=2), same_QKL.argmax(axis=2), most)


def _recall(
    inverted: Any, vectors_RD: StoredVectors, rows_Q: Ints, query_QD: Floats, last_Q: Floats, probes: int
) -> float:
    """The share of the nearest that is found; of rows as near as the last one any counts."""
    asked = min(MEASURED_NEAREST, len(vectors_RD) - 1)
    found_QK = _search(inverted, query_QD, MEASURED_NEAREST + 1, probes, None)
    vectors_QKD = as_float32(vectors_RD[found_QK])
    cosines_QK = np.einsum("qkd,qd->qk", vectors_QKD, query_QD)
    near_QK = (found_QK >= 0) & (found_QK != rows_Q[:, None]) & (cosines_QK >= last_Q[:, None] - 1e-6)
    return float(np.minimum(near_QK.sum(axis=1), asked).mean() / asked)


def _search(inverted: Any, query_QD: Floats, count: int, probes: int, live: bytes | None) -> Ints:
    import faiss

    wrapped: Any = faiss  # Its stubs do not know the keywords that its classes take.
    selector = {} if live is None else {"sel": wrapped.IDSelectorBitmap(np.frombuffer(live, np.uint8))}
    settings = wrapped.SearchParametersIVF(nprobe=_lists_to_probe(inverted, count, probes), **selector)
    asked = min(inverted.ntotal, count + min(count, SPARE))
    return cast(Ints, inverted.search(np.ascontiguousarray(query_QD, np.float32), asked, params=settings)[1])


def _lists_to_probe(inverted: Any, count: int, probes: int) -> int:
    """How many lists are looked through for so many nearest."""
    enough = math.ceil(MIN_LIST_ROOM * count * inverted.nlist / inverted.ntotal)
    return int(min(inverted.nlist, max(probes, enough)))


def _spread(rows: int, count: int) -> Ints:
    """Up to `count` rows, evenly spread.

    >>> _spread(10, 4).tolist(), _spread(3, 8).tolist()
    ([0, 3, 6, 9], [0, 1, 2])
    """
    return np.unique(np.linspace(0, rows - 1, min(rows, count)).astype(np.int64))
