"""The index in use, and the newer one in its place as soon as it lies on disk: whoever began with the old one ends with it."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from graph.arrays import MANIFEST, read_manifest
from graph.build import OpenEncoder
from graph.errors import UserError
from graph.index import Index, open_index
from graph.retrieve import RetrieveSettings, retrieve
from graph.retrieve.settings import Mode
from serve.http.metrics import Metrics

LOG = logging.getLogger("modegraph.serve")
POLL_S = 1.0
WARM_UP = "What is this about?"
Stamp = tuple[int, int, int]


@dataclass(frozen=True)
class Generation:
    """One generation of the index, opened: its number, and the row of each thing by its id."""

    index: Index
    number: int
    stamp: Stamp

    @cached_property
    def rows(self) -> dict[str, dict[str, int]]:
        """Kind ("passage", "proposition", "name", "topic", "summary") to id to row."""
        data = self.index.data
        columns = {
            "document": data.document_sources,
            "passage": data.passage_ids,
            "proposition": data.proposition_ids,
            "name": data.name_ids,
            "summary": data.summary_ids,
        }
        return {kind: {identity: row for row, identity in enumerate(ids)} for kind, ids in columns.items()}


class LiveIndex:
    """The current generation of the index in `folder`; `mode` is warmed up before a generation is taken into use."""

    def __init__(self, folder: Path, mode: Mode, open_encoder: OpenEncoder, metrics: Metrics) -> None:
        self.folder = folder
        self.open_encoder = cache(open_encoder)
        self._mode, self._metrics = mode, metrics
        self._reloading = asyncio.Lock()
        self._current = self._open()
        metrics.generation_number.set(self._current.number)

    @property
    def current(self) -> Generation:
        """The newest generation that is ready; hold on to it for the length of a request."""
        return self._current

    async def watch(self) -> None:
        """Take up what changes on disk, until cancelled."""
        while True:
            await asyncio.sleep(POLL_S)
            await self.refresh()

    async def refresh(self) -> None:
        """Take up the generation on disk, if it is another one; one that cannot be opened is left, and looked at again later."""
        async with self._reloading:
            try:
                if stamp_of(self.folder) == self._current.stamp:
                    return
                self._current = await asyncio.to_thread(self._open)
            except (UserError, OSError, ValueError) as problem:
                self._metrics.swaps.labels("failed").inc()
                LOG.warning("the changed index is not taken up yet: %s", problem)
                return
        self._metrics.swaps.labels("done").inc()
        self._metrics.generation_number.set(self._current.number)
        LOG.info("index: generation %d is in use", self._current.number)

    def _open(self) -> Generation:
        stamp = stamp_of(self.folder)
        index = open_index(self.folder, self.open_encoder)
        if len(index.data.passage_ids):
            retrieve(index, WARM_UP, RetrieveSettings.model_validate({"mode": self._mode}))
        return Generation(index, read_manifest(self.folder)["generation"], stamp)


def stamp_of(folder: Path) -> Stamp:
    """What changes with every new manifest."""
    found = (folder / MANIFEST).stat()
    return found.st_mtime_ns, found.st_ino, found.st_size
