"""Vectors by id: a text whose vector is stored is not encoded again, even after a run was killed.

A batch of new vectors is stored as soon as the encoder returns it, in a file that is renamed into place and remains until the next generation
contains the vectors; a run that is killed loses at most one batch (with Ray, the batches that its workers are encoding). The folder may also
contain segments recovered from a damaged index. The name of every file ends with its checksum."""

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from graph.models.encoder import unit_rows
from graph.shared.console import track
from graph.shared.ids import ID_BYTES, is_intact, quick_sum_of
from graph.shared.jsonl import replacing
from graph.store.columns.column_files import write_array
from graph.store.columns.moved import find_ids, moved_numbers
from graph.store.columns.row_map import RowMap
from graph.store.columns.strings import KnownIds, Strings, ids_at, rows_among, rows_among_sorted
from graph.store.data import VECTOR_FIELDS, IndexData
from graph.store.float16 import StoredVectors
from graph.store.index_settings import VectorType
from graph.store.vectors import SEGMENT_ENDING, Vectors, open_segment, write_segment
from graph.types import Encoder, Floats, IdBytes, Ints, Workers

PENDING_FOLDER = "pending"


class PendingVectors:
    """The batches of vectors in the folder of an index; `ids` are the ids of all their vectors. With `check`, damaged files do not count."""

    def __init__(self, folder: Path, check: bool = True) -> None:
        self.index, self._folder = folder, folder / PENDING_FOLDER
        self._writer = uuid4().hex[:8]
        self._files: list[Path] = []
        self._ids: list[IdBytes] = []
        self._sorted: KnownIds | None = None
        with suppress(FileNotFoundError):  # A writer that finishes deletes the files, even while this loop opens them.
            for file in sorted((*self._folder.glob("*.npy"), *self._folder.glob(f"*{SEGMENT_ENDING}"))):
                if not check or is_intact(file):
                    self._add(file, _open_batch(file)[0])

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(self._known().id_K.astype(str).tolist())

    def has(self, ids: IdBytes) -> NDArray[np.bool_]:
        """Whether each id has a vector: bool[N]."""
        return self._known().rows(ids) >= 0

    def put(self, ids: Sequence[str] | IdBytes, vectors_BD: Floats) -> None:
        """Store a batch."""
        kinds = [("id", ID_BYTES), ("vector", np.float32, vectors_BD.shape[1:])]
        batch = np.empty(len(ids), kinds)
        batch["id"], batch["vector"] = ids, vectors_BD
        content = BytesIO()
        write_array(content, batch)
        data = content.getbuffer()
        file = self._next(f"-{quick_sum_of(data)}.npy")
        with replacing(file) as partial:
            partial.write_bytes(data)
        self._add(file, batch["id"])

    def adopt(self, segment: Path) -> None:
        """Store the vectors of an intact segment: as a hard link if the file system supports it, else as a copy."""
        file = self._next(f"-{segment.name}")
        with replacing(file) as partial:
            try:
                os.link(segment, partial)
            except OSError:
                shutil.copyfile(segment, partial)
        self._add(file, _open_batch(file)[0])

    def take(self, ids: IdBytes, dtype: np.dtype[Any]) -> StoredVectors:
        """The vectors [N, D] of one or more stored ids, rounded if `dtype` is float16. Only one batch at a time is in memory."""
        starts_F = np.cumsum([0, *(len(ids_B) for ids_B in self._ids)])
        row_N = self._known().rows(ids)
        file_N = np.searchsorted(starts_F, row_N, "right") - 1
        vectors_ND = np.empty((len(ids), _open_batch(self._files[file_N[0]])[1].shape[1]), dtype)
        order = np.argsort(file_N, kind="stable")
        for part in np.split(order, np.flatnonzero(np.diff(file_N[order])) + 1):
            file = file_N[part[0]]
            vectors_ND[part] = _open_batch(self._files[file])[1][row_N[part] - starts_F[file]]
        return vectors_ND

    def drop(self) -> None:
        """Delete all batches; called once a saved generation contains their vectors."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._files, self._ids, self._sorted = [], [], None

    def _next(self, ending: str) -> Path:
        """The path of the next file, whose name no other writer uses."""
        self._folder.mkdir(exist_ok=True)
        return self._folder / f"{len(self._files):08}-{self._writer}{ending}"

    def _add(self, file: Path, ids: IdBytes) -> None:
        self._files.append(file)
        self._ids.append(np.array(ids))
        self._sorted = None

    def _known(self) -> KnownIds:
        """The ids of all vectors, file by file."""
        if self._sorted is None:
            self._sorted = KnownIds.of(np.concatenate([np.zeros(0, ID_BYTES), *self._ids]))
        return self._sorted


def _open_batch(file: Path) -> tuple[Any, Any]:
    """The ids and the vectors of a batch or a segment, memory-mapped."""
    if file.suffix == SEGMENT_ENDING:
        segment = open_segment(file)
        return segment.ids_R, segment.vectors_RD
    batch = np.load(file, mmap_mode="r")
    return batch["id"], batch["vector"]


BATCH_TEXTS = 256
"""Texts per batch, and so the maximum number of vectors that a crash loses without Ray."""
MAX_IN_MEMORY = 262_144
"""The maximum number of new vectors of one kind in memory: 0.4 GB with 384 dimensions."""

VectorKind = Literal["passages", "propositions", "entities", "summaries"]

Texts = Strings | Sequence[str]
SORTED_KINDS: tuple[VectorKind, ...] = "propositions", "entities"
"""Kinds whose rows are sorted by id."""


class EmbeddingCache:
    """Unit vectors: those of the last generation (which stay in segments), pending ones from an unfinished run, and new ones, written batch by batch."""

    def __init__(
        self, last: IndexData | None, pending: PendingVectors, encoder: Encoder, dtype: VectorType, workers: Workers
    ) -> None:
        self._last, self._pending, self._encoder, self._dtype = last, pending, encoder, np.dtype(dtype)
        self._workers = workers

    def encode(self, kind: VectorKind, ids: Texts, texts: Texts, merge: RowMap | None = None) -> Vectors:
        """Unit vectors [N, D] of ids and texts. Only texts without a stored vector are encoded; with `merge`, only the ids that it inserts are looked up."""
        last = None if self._last is None else getattr(self._last, VECTOR_FIELDS[kind][1])
        new = np.arange(len(ids)) if merge is None else merge.inserted_K
        last_K = self._find(kind, ids_at(ids, new))
        unknown = new[last_K < 0]
        self._encode_missing(kind, ids, texts, unknown)
        if last is None:
            return self._new_vectors(kind, ids_at(ids, unknown))
        row_K = np.empty(len(new), np.int64)
        row_K[last_K >= 0] = last.row_N[last_K[last_K >= 0]]
        row_K[last_K < 0] = last.starts[-1] + np.arange(len(unknown))
        added = self._new_vectors(kind, ids_at(ids, unknown)).segments if len(unknown) else ()
        moved = row_K if merge is None or not merge.previous_count else moved_numbers(last.row_N, merge, row_K)
        return Vectors((*last.segments, *added), moved)

    def _encode_missing(self, kind: VectorKind, ids: Texts, texts: Texts, unknown: Ints) -> None:
        """Encode the texts of the rows without a pending vector."""
        unknown_ids = ids_at(ids, unknown)
        is_missing = ~self._pending.has(unknown_ids)
        missing, missing_ids = unknown[is_missing], unknown_ids[is_missing]
        if not len(missing):
            return
        longest_first = np.argsort([-len(texts[row]) for row in missing.tolist()], kind="stable")
        batches = [longest_first[start : start + BATCH_TEXTS] for start in range(0, len(missing), BATCH_TEXTS)]
        inputs = ([texts[row] for row in missing[batch].tolist()] for batch in batches)
        vectors = self._workers.map(self._encoder.encode, inputs, needs="encoder")
        for batch in track(batches, f"Encoding {kind}", len(missing), size=len):
            self._pending.put(missing_ids[batch], unit_rows(next(vectors)))

    def _new_vectors(self, kind: VectorKind, ids: IdBytes) -> Vectors:
        """The vectors of ids that the last generation lacks; more than MAX_IN_MEMORY are written to a segment and mapped."""
        if len(ids) <= MAX_IN_MEMORY:
            vectors = self._pending.take(ids, self._dtype) if len(ids) else self._encoder.encode([])
            return Vectors.of(vectors.astype(self._dtype, copy=False), ids)
        field = VECTOR_FIELDS[kind][1]
        segment = write_segment(
            self._pending.index, field, ids, lambda part: self._pending.take(ids[part], self._dtype), MAX_IN_MEMORY
        )
        return Vectors((replace(segment, fresh=True),), np.arange(len(ids)))

    def _find(self, kind: VectorKind, ids: IdBytes) -> Ints:
        """The row of each id in the last generation, −1 if absent."""
        if self._last is None or not len(ids):
            return np.full(len(ids), -1, np.int64)
        find = rows_among_sorted if kind in SORTED_KINDS else rows_among
        return find_ids(getattr(self._last, VECTOR_FIELDS[kind][0]), ids, find)
