"""Vectors by id: a text is encoded once in the life of an index, also when a run was killed half-way."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from graph.arrays import MANIFEST, Strings, load_arrays
from graph.console import track
from graph.data import VECTOR_FIELDS, IndexData
from graph.store import Store
from graph.types import Encoder, Floats

BATCH_TEXTS = 256
"""Texts encoded between two commits: what a crash may cost."""


class VectorBook:
    """Vectors of the last generation, those kept since by a run that did not finish, and new ones from the encoder."""

    def __init__(self, folder: Path, store: Store, encoder: Encoder) -> None:
        self._store, self._encoder = store, encoder
        self._known: dict[str, Floats] = {}
        if (folder / MANIFEST).exists():
            last = load_arrays(folder, IndexData)
            for ids, vectors in VECTOR_FIELDS:
                self._learn(getattr(last, ids), getattr(last, vectors))
        self._known.update(store.pending_vectors())

    def encode(self, what: str, ids: Sequence[str], texts: Sequence[str]) -> Floats:
        """Unit vectors [N, D] for ids and their texts; only texts whose id is unknown go to the encoder."""
        missing = sorted(
            (row for row, key in enumerate(ids) if key not in self._known), key=lambda row: (-len(texts[row]), row)
        )
        if missing:
            batches = [missing[start : start + BATCH_TEXTS] for start in range(0, len(missing), BATCH_TEXTS)]
            for rows in track(batches, f"Encoding {what}", len(missing), size=len):
                self._encode_rows([ids[row] for row in rows], [texts[row] for row in rows])
        vectors = [self._known[key] for key in ids]
        return np.stack(vectors) if vectors else self._encoder.encode([])

    def _encode_rows(self, ids: Sequence[str], texts: Sequence[str]) -> None:
        vectors_BD = self._encoder.encode(texts)
        with self._store.transaction():
            self._store.put_vectors(ids, vectors_BD)
        self._known.update(zip(ids, vectors_BD, strict=True))

    def _learn(self, ids: Strings, vectors_ND: Floats) -> None:
        self._known.update((ids[row], vectors_ND[row]) for row in range(len(ids)))
