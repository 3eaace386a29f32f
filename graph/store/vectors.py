"""Vectors by id: a text is encoded once in the life of an index, also when a run was killed half-way."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from graph.encode.encoder import unit_rows
from graph.shared.console import track
from graph.shared.types import Encoder, IdBytes, Ints, Workers
from graph.store.columns.moved import find_ids
from graph.store.columns.strings import Strings, id_bytes, rows_among
from graph.store.data import VECTOR_FIELDS, IndexData
from graph.store.pending import PendingVectors
from graph.store.segments import Vectors, write_segment
from graph.store.settings import VectorType
from graph.workers.here import THIS_PROCESS

BATCH_TEXTS = 256
"""Texts encoded between two commits: what a crash may cost."""
MOST_HELD = 262_144
"""New vectors that are held in memory, half a gigabyte at most (384 numbers each)."""

Kind = Literal["passages", "propositions", "entities", "summaries"]

Texts = Strings | Sequence[str]
IN_ORDER: tuple[Kind, ...] = "propositions", "entities"
"""Whose rows are in the order of their ids."""


class EmbeddingCache:
    """Vectors of the last generation, those kept since by a run that did not finish, and new ones from the encoder, made unit, as `dtype`.

    New vectors are kept on disk as they come, and no more than MOST_HELD are ever held in memory; those of the last generation stay in
    their segments.
    """

    def __init__(
        self,
        last: IndexData | None,
        pending: PendingVectors,
        encoder: Encoder,
        dtype: VectorType = "float32",
        workers: Workers = THIS_PROCESS,
    ) -> None:
        self._last, self._pending, self._encoder, self._dtype = last, pending, encoder, np.dtype(dtype)
        self._workers = workers

    def encode(self, kind: Kind, ids: Texts, texts: Texts, last_N: Ints | None = None) -> Vectors:
        """Unit vectors [N, D] for ids and their texts; only texts whose id is unknown go to the encoder.

        `last_N` are rows that ids are known to have had, −1 where that is not known.
        """
        known, rows_N = self._last_rows(kind, ids, last_N)
        new = np.flatnonzero(rows_N < 0)
        new_ids = _ids_at(ids, new)
        waits = ~self._pending.has(new_ids)
        missing, missing_ids = new[waits], new_ids[waits]
        longest_first = np.argsort([-len(texts[row]) for row in missing.tolist()], kind="stable")
        if len(missing):
            batches = [longest_first[start : start + BATCH_TEXTS] for start in range(0, len(missing), BATCH_TEXTS)]
            given = ([texts[row] for row in missing[batch].tolist()] for batch in batches)
            found = self._workers.map(self._encoder.encode, given, computes=True)
            for batch in track(batches, f"Encoding {kind}", len(missing), size=len):
                self._pending.put(missing_ids[batch], unit_rows(next(found)))
        if known is not None and len(new) == 0:
            return Vectors(known.segments, known.row_N[rows_N])
        added = self._since(kind, new_ids)
        if known is None:
            return added
        joined = Vectors.join([known, added])
        rows_N[new] = len(known) + np.arange(len(new))
        return Vectors(joined.segments, joined.row_N[rows_N])

    def _since(self, kind: Kind, ids: IdBytes) -> Vectors:
        """The vectors of ids that the last generation does not have; many are mapped from the segment that they are written to."""
        if len(ids) <= MOST_HELD:
            found = self._pending.take(ids, self._dtype) if len(ids) else self._encoder.encode([])
            return Vectors.of(found.astype(self._dtype, copy=False), ids)
        field = VECTOR_FIELDS[kind][1]
        segment = write_segment(
            self._pending.index, field, ids, lambda part: self._pending.take(ids[part], self._dtype), MOST_HELD
        )
        return Vectors((replace(segment, fresh=True),), np.arange(len(ids)))

    def _last_rows(self, kind: Kind, ids: Texts, last_N: Ints | None) -> tuple[Vectors | None, Ints]:
        """The vectors of the last generation, and the row of each id among them (−1: none)."""
        rows_N = np.full(len(ids), -1, np.int64) if last_N is None else last_N.copy()
        if self._last is None:
            return None, rows_N
        id_field, vector_field = VECTOR_FIELDS[kind]
        unknown = np.flatnonzero(rows_N < 0)
        find = find_ids if kind in IN_ORDER else rows_among
        rows_N[unknown] = find(getattr(self._last, id_field), _ids_at(ids, unknown))
        return getattr(self._last, vector_field), rows_N


def _ids_at(ids: Texts, rows: Ints) -> IdBytes:
    """The ids of some rows; of a column that has moved, few are asked for one by one."""
    return id_bytes([ids[row] for row in rows.tolist()]) if len(rows) <= BATCH_TEXTS else id_bytes(ids)[rows]
