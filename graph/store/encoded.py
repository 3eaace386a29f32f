"""Vectors by id: a text is encoded once in the life of an index, also when a run was killed half-way."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from graph.encode.encoder import unit_rows
from graph.shared.console import track
from graph.shared.types import Encoder, IdBytes, Ints, Workers
from graph.store.columns.merge import Merge
from graph.store.columns.moved import find_ids
from graph.store.columns.numbers import moved_numbers
from graph.store.columns.strings import Strings, ids_at, rows_among, rows_in_order
from graph.store.data import VECTOR_FIELDS, IndexData
from graph.store.settings import VectorType
from graph.store.vectors.matrix import Vectors
from graph.store.vectors.pending import PendingVectors
from graph.store.vectors.segment import write_segment
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

    def encode(self, kind: Kind, ids: Texts, texts: Texts, merge: Merge | None = None) -> Vectors:
        """Unit vectors [N, D] for ids and their texts; only texts whose id is unknown go to the encoder.

        `merge` tells how the rows of the last generation have moved, if that is known.
        """
        known = None if self._last is None else getattr(self._last, VECTOR_FIELDS[kind][1])
        new = np.arange(len(ids)) if merge is None else merge.new_K
        last_K = self._find(kind, ids_at(ids, new))
        unknown = new[last_K < 0]
        self._encode_missing(kind, ids, texts, unknown)
        if known is None:
            return self._since(kind, ids_at(ids, unknown))
        row_K = np.empty(len(new), np.int64)
        row_K[last_K >= 0] = known.row_N[last_K[last_K >= 0]]
        row_K[last_K < 0] = known.starts[-1] + np.arange(len(unknown))
        added = self._since(kind, ids_at(ids, unknown)).segments if len(unknown) else ()
        moved = row_K if merge is None or not merge.count else moved_numbers(known.row_N, merge, row_K)
        return Vectors((*known.segments, *added), moved)

    def _encode_missing(self, kind: Kind, ids: Texts, texts: Texts, unknown: Ints) -> None:
        """Encode the texts in rows whose vectors no earlier run has kept."""
        unknown_ids = ids_at(ids, unknown)
        waits = ~self._pending.has(unknown_ids)
        missing, missing_ids = unknown[waits], unknown_ids[waits]
        if not len(missing):
            return
        longest_first = np.argsort([-len(texts[row]) for row in missing.tolist()], kind="stable")
        batches = [longest_first[start : start + BATCH_TEXTS] for start in range(0, len(missing), BATCH_TEXTS)]
        given = ([texts[row] for row in missing[batch].tolist()] for batch in batches)
        found = self._workers.map(self._encoder.encode, given, needs="encoder")
        for batch in track(batches, f"Encoding {kind}", len(missing), size=len):
            self._pending.put(missing_ids[batch], unit_rows(next(found)))

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

    def _find(self, kind: Kind, ids: IdBytes) -> Ints:
        """The row of each id in the last generation (−1: none)."""
        if self._last is None or not len(ids):
            return np.full(len(ids), -1, np.int64)
        find = rows_in_order if kind in IN_ORDER else rows_among
        return find_ids(getattr(self._last, VECTOR_FIELDS[kind][0]), ids, find)
