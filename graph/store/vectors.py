"""Vectors by id: a text is encoded once in the life of an index, also when a run was killed half-way."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from graph.encode.encoder import unit_rows
from graph.shared.console import track
from graph.shared.types import Encoder, Floats, Ints
from graph.store.arrays import rows_among
from graph.store.data import VECTOR_FIELDS, IndexData
from graph.store.pending import PendingVectors

BATCH_TEXTS = 256
"""Texts encoded between two commits: what a crash may cost."""

Kind = Literal["passages", "propositions", "entities", "summaries"]


class EmbeddingCache:
    """Vectors of the last generation, those kept since by a run that did not finish, and new ones from the encoder, made unit.

    New vectors are kept on disk as they come, so that no more than one array of a kind is ever held in memory.
    """

    def __init__(self, last: IndexData | None, pending: PendingVectors, encoder: Encoder) -> None:
        self._last, self._pending, self._encoder = last, pending, encoder
        self._kept = pending.ids

    def encode(self, kind: Kind, ids: Sequence[str], texts: Sequence[str]) -> Floats:
        """Unit vectors [N, D] for ids and their texts; only texts whose id is unknown go to the encoder."""
        last_LD, rows_N = self._last_rows(kind, ids)
        missing = [row for row in np.flatnonzero(rows_N < 0).tolist() if ids[row] not in self._kept]
        missing.sort(key=lambda row: (-len(texts[row]), row))
        if missing:
            batches = [missing[start : start + BATCH_TEXTS] for start in range(0, len(missing), BATCH_TEXTS)]
            for batch in track(batches, f"Encoding {kind}", len(missing), size=len):
                vectors_BD = unit_rows(self._encoder.encode([texts[row] for row in batch]))
                self._pending.put([ids[row] for row in batch], vectors_BD)
        return self._gather(ids, rows_N, last_LD)

    def _gather(self, ids: Sequence[str], rows_N: Ints, last_LD: Floats | None) -> Floats:
        """The vectors of all ids: those with a row from the last generation, the others from those kept since."""
        if last_LD is None or len(last_LD) == 0:
            return self._pending.take(ids) if len(ids) else self._encoder.encode([])
        vectors_ND = np.empty((len(ids), last_LD.shape[1]), np.float32)
        old, new = np.flatnonzero(rows_N >= 0), np.flatnonzero(rows_N < 0)
        vectors_ND[old] = last_LD[rows_N[old]]
        self._pending.fill(vectors_ND, new, [ids[row] for row in new.tolist()])
        return vectors_ND

    def _last_rows(self, kind: Kind, ids: Sequence[str]) -> tuple[Floats | None, Ints]:
        """The vectors of the last generation, and the row of each id among them (−1: none)."""
        if self._last is None:
            return None, np.full(len(ids), -1, np.int64)
        id_field, vector_field = VECTOR_FIELDS[kind]
        return getattr(self._last, vector_field), rows_among(getattr(self._last, id_field), ids)
