"""Vectors that are in no saved array yet: kept batch by batch as the encoder gives them, until the next generation holds them.

One file a batch, renamed into place, so that a run that was killed has lost at most the batch it was at. Beside them may lie segments
of a damaged index, each with a number of its own too.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graph.shared.ids import BYTES
from graph.shared.types import Floats, Ints
from graph.store.segments import ENDING, open_segment

FOLDER = "pending"


class PendingVectors:
    """The batches in the folder of an index; `ids` are those of all vectors in them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER
        self._files: list[Path] = []
        self._place_of: dict[str, tuple[int, int]] = {}
        for file in sorted((*self._folder.glob("*.npy"), *self._folder.glob(f"*{ENDING}"))):
            self._add(file, [identity.decode() for identity in _open(file)[0].tolist()])

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(self._place_of)

    def __contains__(self, identity: str) -> bool:
        return identity in self._place_of

    def put(self, ids: Sequence[str], vectors_BD: Floats) -> None:
        """Keep a batch."""
        kinds = [("id", f"S{2 * BYTES}"), ("vector", np.float32, vectors_BD.shape[1:])]
        batch = np.empty(len(ids), kinds)
        batch["id"], batch["vector"] = ids, vectors_BD
        file = self._next(".npy")
        partial = file.with_suffix(".partial")
        with partial.open("wb") as opened:
            np.save(opened, batch)
        partial.replace(file)
        self._add(file, ids)

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
        self._add(file, [identity.decode() for identity in _open(file)[0].tolist()])

    def take(self, ids: Sequence[str]) -> Floats:
        """The vectors [N, D] of at least one id; all of them must be there."""
        place_N2 = np.array([self._place_of[identity] for identity in ids], np.int64)
        vectors_ND = np.empty((len(ids), _open(self._files[place_N2[0, 0]])[1].shape[1]), np.float32)
        self._fill(vectors_ND, place_N2)
        return vectors_ND

    def drop(self) -> None:
        """Forget them all: the arrays have been saved."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._files, self._place_of = [], {}

    def _fill(self, vectors_ND: Floats, place_N2: Ints) -> None:
        """File by file, so that one batch at a time is in memory."""
        order = np.argsort(place_N2[:, 0], kind="stable")
        for part in np.split(order, np.flatnonzero(np.diff(place_N2[order, 0])) + 1):
            if len(part):
                _, vectors_BD = _open(self._files[place_N2[part[0], 0]])
                vectors_ND[part] = vectors_BD[place_N2[part, 1]]

    def _next(self, ending: str) -> Path:
        """The file after all that are there."""
        self._folder.mkdir(exist_ok=True)
        return self._folder / f"{len(self._files):08}{ending}"

    def _add(self, file: Path, ids: Sequence[str]) -> None:
        self._place_of.update((identity, (len(self._files), row)) for row, identity in enumerate(ids))
        self._files.append(file)


def _open(file: Path) -> tuple[Any, Any]:
    """The ids and the vectors of a batch or a segment, memory-mapped."""
    if file.suffix == ENDING:
        segment = open_segment(file)
        return segment.ids_R, segment.vectors_RD
    batch = np.load(file, mmap_mode="r")
    return batch["id"], batch["vector"]
