"""Approximate nearest neighbours (ANN) of the vectors of one segment: a faiss inverted file (IVF, 8 bits per number), next to the segment.

Vectors are grouped into lists around centroids; a search probes the lists nearest to the query. The number of probed lists is chosen when the file is built:
the smallest power of two with which a sample of the vectors reaches a recall of TARGET_RECALL, else the maximum.
A search returns candidates, which the caller ranks by exact cosine.

Legend: R rows of a segment, Q queries, K results of each, X compared rows, B rows of a batch, S training vectors, U distinct rows, L lists,
D dimensions.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast
from weakref import WeakValueDictionary

import numpy as np

from graph.errors import DamagedFile
from graph.shared.console import say
from graph.shared.ids import is_intact, quick_sum
from graph.store.float16 import StoredVectors, as_float32, batches, gather_rows
from graph.types import Floats, Ints

ANN_ENDING = ".ann"
LISTS_PER_ROOT = 2
"""Number of lists, in multiples of the square root of the number of rows."""
TRAINED_PER_LIST, TRAINING_ROUNDS = 40, 5
"""Training vectors per list, and rounds of k-means."""
ADDED_ROWS = 8_192
"""Vectors that are read, converted to float32 and passed to faiss at a time."""
SAMPLED_ROWS, MEASURED_NEAREST = 100, 10
"""The number of rows on which recall is measured, and the number of nearest neighbours to find for each."""
TARGET_RECALL, MIN_RECALL = 0.99, 0.98
MAX_PROBED_SHARE, MIN_PROBE_LIMIT = 1 / 4, 64
"""When few nearest neighbours are requested, at most MAX_PROBED_SHARE of the lists, or MIN_PROBE_LIMIT if that is more, are probed."""
LIST_OVERSAMPLING = 4
"""The probed lists contain on average at least this many times the requested rows."""
SPARE = 100
"""The maximum number of candidates beyond the requested number, which are needed because vectors of 8 bits per number give only a rough ranking."""


@dataclass(frozen=True)
class Ann:
    """The ANN index of a segment, in a file next to it. `recall` is the measured recall of the MEASURED_NEAREST nearest rows with `probes` probed lists."""

    file: Path
    probes: int
    recall: float

    @cached_property
    def inverted(self) -> Any:
        """The faiss index, its lists memory-mapped. DamagedFile if its contents have changed, before faiss reads any of it."""
        import faiss

        if not is_intact(self.file):
            remedy = f"run: modegraph repair {self.file.parents[1]}"
            raise DamagedFile(f"{self.file}: its contents have changed", "an intact ANN index", remedy)
        return faiss.read_index(str(self.file), faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)

    def search(self, query_QD: Floats, count: int, live: bytes | None = None) -> Ints:
        """Candidates for the `count` nearest of each query, −1 where there are fewer: [Q, K], K ≥ count unless the segment has fewer rows.

        `live` has a bit for each row of the segment, the lowest bit of each byte first: only rows whose bit is set are returned (None: all).
        If the lists nearest to a query contain too few such rows, all lists are probed.
        """
        found_QK = _search(self.inverted, query_QD, count, self.probes, live)
        short_Q = found_QK[:, min(count, self.inverted.ntotal) - 1] < 0
        if short_Q.any():
            found_QK[short_Q] = _search(self.inverted, query_QD[short_Q], count, self.inverted.nlist, live)
        return found_QK


_OPEN_INDEXES: "WeakValueDictionary[Path, Ann]" = WeakValueDictionary()


def open_ann(file: Path, probes: int, recall: float) -> Ann:
    """The ANN index in a file, shared by all open generations: its bytes are checked once, at the first search."""
    return _OPEN_INDEXES.setdefault(file, Ann(file, probes, recall))


def build_ann(folder: Path, segment: str, vectors_RD: StoredVectors) -> Ann:
    """Build the ANN index of the vectors of a segment in `folder`; print a warning if its recall is below MIN_RECALL."""
    inverted = inverted_file(vectors_RD)
    probes, recall = _choose_probes(inverted, vectors_RD)
    if recall < MIN_RECALL:
        found = f"{recall:.3f} of the {MEASURED_NEAREST} nearest vectors"
        say(f"{segment}: its ANN index finds {found}, less than {MIN_RECALL}")
    stem = Path(segment).stem
    partial = folder / f"{stem}.partial"
    write_ann(inverted, partial)
    file = folder / f"{stem}-{quick_sum(partial)}{ANN_ENDING}"
    partial.replace(file)
    return Ann(file, probes, recall)


def write_ann(inverted: Any, file: Path) -> None:
    """Write a faiss index through a Python file, because faiss's own writer (1.15) silently loses the last 4 KiB when the disk is full."""
    import faiss

    with file.open("wb") as opened:
        faiss.write_index(inverted, faiss.PyCallbackIOWriter(opened.write))


def inverted_file(vectors_RD: StoredVectors) -> Any:
    """A faiss inverted file of the vectors. The same vectors give the same bytes."""
    import faiss

    rows, dimensions = vectors_RD.shape
    lists = min(rows, math.isqrt(LISTS_PER_ROOT**2 * rows))
    inverted = faiss.IndexIVFScalarQuantizer(
        faiss.IndexFlatIP(dimensions), dimensions, lists, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT
    )
    train_lists(inverted, gather_rows(vectors_RD, training_rows(rows, lists), ADDED_ROWS))
    for batch_BD in batches(vectors_RD, ADDED_ROWS):
        inverted.add(batch_BD)
    return inverted


def training_rows(rows: int, lists: int) -> Ints:
    """The training rows for the centroids of `lists` lists, evenly spaced."""
    return _spread(rows, TRAINED_PER_LIST * lists)


def train_lists(inverted: Any, sample_SD: Floats) -> None:
    """Train the centroids of an inverted file by k-means, with a fixed seed."""
    parameters = inverted.cp
    parameters.niter, parameters.spherical, parameters.min_points_per_centroid = TRAINING_ROUNDS, True, 1
    parameters.max_points_per_centroid = TRAINED_PER_LIST
    inverted.train(sample_SD)


def _choose_probes(inverted: Any, vectors_RD: StoredVectors) -> tuple[int, float]:
    """The number of lists to probe, the smallest power of two with a recall of at least TARGET_RECALL on a sample, or else the maximum; and its recall."""
    rows_Q = _spread(len(vectors_RD), SAMPLED_ROWS)
    query_QD = as_float32(vectors_RD[rows_Q])
    nearest_QK, cosines_QK = _nearest(vectors_RD, rows_Q, query_QD)
    if nearest_QK.shape[1] == 0:
        return 1, 1.0
    most = min(inverted.nlist, max(MIN_PROBE_LIMIT, int(MAX_PROBED_SHARE * inverted.nlist)))
    ranks_QK = _ranks_of_lists(inverted, vectors_RD, query_QD, nearest_QK, most)
    for probes in [*(2**power for power in range(most.bit_length()) if 2**power < most), most]:
        is_probed_QK = ranks_QK < _lists_to_probe(inverted, MEASURED_NEAREST + 1, probes)
        if probes < most and np.mean(is_probed_QK) < TARGET_RECALL:
            continue
        recall = _recall(inverted, vectors_RD, rows_Q, query_QD, cosines_QK.min(axis=1), probes)
        if recall >= TARGET_RECALL:
            break
    return probes, round(recall, 4)


def _nearest(vectors_RD: StoredVectors, rows_Q: Ints, query_QD: Floats) -> tuple[Ints, Floats]:
    """The MEASURED_NEAREST rows nearest to each sampled row, other than the row itself, and their cosines, by exact search: [Q, K], unordered."""
    count, start = min(MEASURED_NEAREST, len(vectors_RD) - 1), 0
    found_QK, cosines_QK = np.zeros((len(rows_Q), 0), np.int64), np.zeros((len(rows_Q), 0), np.float32)
    for batch_BD in batches(vectors_RD, ADDED_ROWS):
        rows_B = np.arange(start, start + len(batch_BD))
        cosines_QB = np.where(rows_B == rows_Q[:, None], -np.inf, (batch_BD @ query_QD.T).T)
        row_QX = np.concatenate([found_QK, np.broadcast_to(rows_B, cosines_QB.shape)], axis=1)
        cosines_QX = np.concatenate([cosines_QK, cosines_QB], axis=1)
        best_QK = np.argpartition(-cosines_QX, min(count, cosines_QX.shape[1] - 1), axis=1)[:, :count]
        found_QK = np.take_along_axis(row_QX, best_QK, axis=1)
        cosines_QK = np.take_along_axis(cosines_QX, best_QK, axis=1)
        start += len(batch_BD)
    return found_QK, cosines_QK


def _ranks_of_lists(inverted: Any, vectors_RD: StoredVectors, query_QD: Floats, row_QK: Ints, most: int) -> Ints:
    """The number of lists that are nearer to a query than the list of a row, at most `most`: int64[Q, K]."""
    lists_QL = inverted.quantizer.search(query_QD, most)[1]
    rows_U, place_QK = np.unique(row_QK, return_inverse=True)
    list_QK = inverted.quantizer.search(as_float32(vectors_RD[rows_U]), 1)[1][place_QK, 0]
    same_QKL = list_QK[:, :, None] == lists_QL[:, None, :]
    return np.where(same_QKL.any(axis=2), same_QKL.argmax(axis=2), most)


def _recall(
    inverted: Any, vectors_RD: StoredVectors, rows_Q: Ints, query_QD: Floats, last_Q: Floats, probes: int
) -> float:
    """The mean recall of the nearest rows; a row counts as found if its cosine with the query is at least `last_Q`, the lowest of the exact nearest rows."""
    nearest = min(MEASURED_NEAREST, len(vectors_RD) - 1)
    found_QK = _search(inverted, query_QD, MEASURED_NEAREST + 1, probes, None)
    vectors_QKD = as_float32(vectors_RD[found_QK])
    cosines_QK = np.einsum("qkd,qd->qk", vectors_QKD, query_QD)
    near_QK = (found_QK >= 0) & (found_QK != rows_Q[:, None]) & (cosines_QK >= last_Q[:, None] - 1e-6)
    return float(np.minimum(near_QK.sum(axis=1), nearest).mean() / nearest)


def _search(inverted: Any, query_QD: Floats, count: int, probes: int, live: bytes | None) -> Ints:
    import faiss

    untyped: Any = faiss  # The stubs of faiss lack the keywords of its classes.
    selector = {} if live is None else {"sel": untyped.IDSelectorBitmap(np.frombuffer(live, np.uint8))}
    settings = untyped.SearchParametersIVF(nprobe=_lists_to_probe(inverted, count, probes), **selector)
    candidates = min(inverted.ntotal, count + min(count, SPARE))
    return cast(Ints, inverted.search(np.ascontiguousarray(query_QD, np.float32), candidates, params=settings)[1])


def _lists_to_probe(inverted: Any, count: int, probes: int) -> int:
    """The number of lists to probe for the `count` nearest rows."""
    enough = math.ceil(LIST_OVERSAMPLING * count * inverted.nlist / inverted.ntotal)
    return int(min(inverted.nlist, max(probes, enough)))


def _spread(rows: int, count: int) -> Ints:
    """Up to `count` rows, evenly spaced.

    >>> _spread(10, 4).tolist(), _spread(3, 8).tolist()
    ([0, 3, 6, 9], [0, 1, 2])
    """
    return np.unique(np.linspace(0, rows - 1, min(rows, count)).astype(np.int64))
