"""Vectors by id: a text is encoded once in the life of an index, also when a run was killed half-way."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from graph.encode.encoder import unit_rows
from graph.shared.console import track
from graph.shared.types import Encoder, Ints
from graph.store.arrays import Strings, rows_among
from graph.store.data import VECTOR_FIELDS, IndexData
from graph.store.pending import PendingVectors
from graph.store.segments import Vectors

BATCH_TEXTS = 256
"""Texts encoded between two commits: what a crash may cost."""

Kind = Literal["passages", "propositions", "entities", "summaries"]

Texts = Strings | Sequence[str]


class EmbeddingCache:
    """Vectors of the last generation, those kept since by a run that did not finish, and new ones from the encoder, made unit.

    New vectors are kept on disk as they come, so that no more than one array of a kind is ever held in memory; those of the last
    generation stay in their segments.
    """

    def __init__(self, last: IndexData | None, pending: PendingVectors, encoder: Encoder) -> None:
        self._last, self._pending, self._encoder = last, pending, encoder

    def encode(self, kind: Kind, ids: Texts, texts: Texts) -> Vectors:
        """Unit vectors [N, D] for ids and their texts; only texts whose id is unknown go to the encoder."""
        known, rows_N = self._last_rows(kind, ids)
        missing = [row for row in np.flatnonzero(rows_N < 0).tolist() if ids[row] not in self._pending]
        missing.sort(key=lambda row: (-len(texts[row]), row))
        if missing:
            batches = [missing[start : start + BATCH_TEXTS] for start in range(0, len(missing), BATCH_TEXTS)]
            for batch in track(batches, f"Encoding {kind}", len(missing), size=len):
                vectors_BD = unit_rows(self._encoder.encode([texts[row] for row in batch]))
                self._pending.put([ids[row] for row in batch], vectors_BD)
        new = np.flatnonzero(rows_N < 0)
        if known is not None and len(new) == 0:
            return Vectors(known.segments, known.row_N[rows_N])
        added = self._since([ids[row] for row in new.tolist()])
        if known is None:
            return added
        joined = Vectors.join([known, added])
        rows_N[new] = len(known) + np.arange(len(new))
        return Vectors(joined.segments, joined.row_N[rows_N])

    def _since(self, ids: Sequence[str]) -> Vectors:
        """The vectors of ids that the last generation does not have."""
        return Vectors.of(self._pending.take(ids) if len(ids) else self._encoder.encode([]), ids)

    def _last_rows(self, kind: Kind, ids: Texts) -> tuple[Vectors | None, Ints]:
        """The vectors of the last generation, and the row of each id among them (−1: none)."""
        if self._last is None:
            return None, np.full(len(ids), -1, np.int64)
        id_field, vector_field = VECTOR_FIELDS[kind]
        return getattr(self._last, vector_field), rows_among(getattr(self._last, id_field), ids)
