"""Vectors that are in no saved array yet: kept batch by batch as the encoder gives them, until the next generation holds them.

One file a batch, renamed into place, so that a run that was killed has lost at most the batch it was at.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from graph.shared.ids import BYTES
from graph.shared.types import Floats, Ints

FOLDER = "pending"


class PendingVectors:
    """The batches in the folder of an index; `ids` are those of all vectors in them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER
        self._files: list[Path] = []
        self._place_of: dict[str, tuple[int, int]] = {}
        for file in sorted(self._folder.glob("*.npy")):
            self._add(file, [identity.decode() for identity in np.load(file, mmap_mode="r")["id"].tolist()])

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(self._place_of)

    def put(self, ids: Sequence[str], vectors_BD: Floats) -> None:
        """Keep a batch."""
        kinds = [("id", f"S{2 * BYTES}"), ("vector", np.float32, vectors_BD.shape[1:])]
        batch = np.empty(len(ids), kinds)
        batch["id"], batch["vector"] = ids, vectors_BD
        self._folder.mkdir(exist_ok=True)
        file = self._folder / f"{len(self._files):08}.npy"
        partial = file.with_suffix(".partial")
        with partial.open("wb") as opened:
            np.save(opened, batch)
        partial.replace(file)
        self._add(file, ids)

    def take(self, ids: Sequence[str]) -> Floats:
        """The vectors [N, D] of at least one id; all of them must be there."""
        place_N2 = np.array([self._place_of[identity] for identity in ids], np.int64)
        first = np.load(self._files[place_N2[0, 0]], mmap_mode="r")["vector"]
        vectors_ND = np.empty((len(ids), first.shape[1]), np.float32)
        self._fill(vectors_ND, np.arange(len(ids)), place_N2)
        return vectors_ND

    def fill(self, vectors_ND: Floats, rows_R: Ints, ids: Sequence[str]) -> None:
        """Write the vectors of R ids into the given rows."""
        self._fill(
            vectors_ND, rows_R, np.array([self._place_of[identity] for identity in ids], np.int64).reshape(-1, 2)
        )

    def drop(self) -> None:
        """Forget them all: the arrays have been saved."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._files, self._place_of = [], {}

    def _fill(self, vectors_ND: Floats, rows_R: Ints, place_R2: Ints) -> None:
        """File by file, so that one batch at a time is in memory."""
        order = np.argsort(place_R2[:, 0], kind="stable")
        for part in np.split(order, np.flatnonzero(np.diff(place_R2[order, 0])) + 1):
            if len(part):
                batch = np.load(self._files[place_R2[part[0], 0]])
                vectors_ND[rows_R[part]] = batch["vector"][place_R2[part, 1]]

    def _add(self, file: Path, ids: Sequence[str]) -> None:
        self._place_of.update((identity, (len(self._files), row)) for row, identity in enumerate(ids))
        self._files.append(file)
