"""Vectors that are in no saved array yet: kept batch by batch as the encoder gives them, until the next generation holds them.

One file a batch, renamed into place, so that a run that was killed has lost at most the batch it was at. Beside them may lie segments
of a damaged index, each with a number of its own too.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from graph.disk.npy import write_array
from graph.shared.ids import ID_BYTES
from graph.shared.types import Floats, IdBytes
from graph.store.columns.strings import KnownIds
from graph.store.vectors.halves import Held
from graph.store.vectors.segment import ENDING, open_segment

FOLDER = "pending"


class PendingVectors:
    """The batches in the folder of an index; `ids` are those of all vectors in them."""

    def __init__(self, folder: Path) -> None:
        self.index, self._folder = folder, folder / FOLDER
        self._own = uuid4().hex[:8]
        self._files: list[Path] = []
        self._ids: list[IdBytes] = []
        self._sorted: KnownIds | None = None
        for file in sorted((*self._folder.glob("*.npy"), *self._folder.glob(f"*{ENDING}"))):
            self._add(file, _open(file)[0])

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(self._known().id_K.astype(str).tolist())

    def has(self, ids: IdBytes) -> NDArray[np.bool_]:
        """Whether each id has a vector: bool[N]."""
        return self._known().rows(ids) >= 0

    def put(self, ids: Sequence[str] | IdBytes, vectors_BD: Floats) -> None:
        """Keep a batch."""
        kinds = [("id", ID_BYTES), ("vector", np.float32, vectors_BD.shape[1:])]
        batch = np.empty(len(ids), kinds)
        batch["id"], batch["vector"] = ids, vectors_BD
        file = self._next(".npy")
        partial = file.with_suffix(".partial")
        with partial.open("wb") as opened:
            write_array(opened, batch)
        partial.replace(file)
        self._add(file, batch["id"])

    def adopt(self, segment: Path) -> None:
        """Keep the vectors of a sound segment, without a copy of it where the file system has hard links."""
        file = self._next(ENDING)
        partial = file.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        try:
            os.link(segment, partial)
        except OSError:
            shutil.copyfile(segment, partial)
        partial.replace(file)
        self._add(file, _open(file)[0])

    def take(self, ids: IdBytes, dtype: np.dtype[Any]) -> Held:
        """The vectors [N, D] of at least one id; all of them must be there. In float16 they are rounded.

        File by file, so that one batch at a time is in memory.
        """
        starts_F = np.cumsum([0, *(len(held) for held in self._ids)])
        row_N = self._known().rows(ids)
        file_N = np.searchsorted(starts_F, row_N, "right") - 1
        vectors_ND = np.empty((len(ids), _open(self._files[file_N[0]])[1].shape[1]), dtype)
        order = np.argsort(file_N, kind="stable")
        for part in np.split(order, np.flatnonzero(np.diff(file_N[order])) + 1):
            file = file_N[part[0]]
            vectors_ND[part] = _open(self._files[file])[1][row_N[part] - starts_F[file]]
        return vectors_ND

    def drop(self) -> None:
        """Forget them all: the arrays have been saved."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._files, self._ids, self._sorted = [], [], None

    def _next(self, ending: str) -> Path:
        """The file after all that are there; no other writer, not even one that comes too late, has one of that name."""
        self._folder.mkdir(exist_ok=True)
        return self._folder / f"{len(self._files):08}-{self._own}{ending}"

    def _add(self, file: Path, ids: IdBytes) -> None:
        self._files.append(file)
        self._ids.append(np.array(ids))
        self._sorted = None

    def _known(self) -> KnownIds:
        """The ids of all vectors, file by file."""
        if self._sorted is None:
            self._sorted = KnownIds.of(np.concatenate([np.zeros(0, ID_BYTES), *self._ids]))
        return self._sorted


def _open(file: Path) -> tuple[Any, Any]:
    """The ids and the vectors of a batch or a segment, memory-mapped."""
    if file.suffix == ENDING:
        segment = open_segment(file)
        return segment.ids_R, segment.vectors_RD
    batch = np.load(file, mmap_mode="r")
    return batch["id"], batch["vector"]
