"""The index in use, and the newer one in its place as soon as it lies on disk: whoever began with the old one ends with it."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from graph.index.filters import Condition
from graph.index.index import Index, open_index
from graph.index.lookup import NodeKind, row_of
from graph.retrieve import RetrieveSettings, retrieve
from graph.shared.ids import content_id
from graph.shared.modes import Mode
from graph.shared.types import OpenEncoder
from graph.store.manifest import read_manifest
from serve.http.telemetry.metrics import Metrics

LOG = logging.getLogger("modegraph.serve")
POLL_S = 0.5
MOST_VIEWS = 32
"""Parts of one generation that are kept: for so many different conditions of keys."""
WARM_UP = "What is this about?"


@dataclass(frozen=True)
class Generation:
    """One generation of the index, opened; of the whole, or of what some conditions let through."""

    index: Index
    where: tuple[Condition, ...] = ()
    _views: dict[tuple[Condition, ...], Generation] = field(default_factory=dict, repr=False, compare=False)

    @property
    def number(self) -> int:
        """How many times this index has been written; another one in its place may have the same number."""
        return self.index.manifest.generation

    @cached_property
    def identity(self) -> str:
        """What tells it from every other index (graph/store/manifest.py), and of a part, from every other such part."""
        data = self.index.data
        return content_id(*data.document_sources, *data.passage_ids) if self.where else self.index.manifest.identity

    def only(self, where: tuple[Condition, ...]) -> Generation:
        """What those see who may see no other documents than those that meet the conditions; made once, and kept as long as this is."""
        if not where:
            return self
        if where not in self._views:
            while len(self._views) >= MOST_VIEWS:
                self._views.pop(next(iter(self._views)), None)
            self._views[where] = Generation(self.index.only(where), where)
        return self._views[where]

    def row(self, kind: NodeKind, name: str) -> int | None:
        """The row of a document by its source, of another thing by its id; None for what is not there."""
        return row_of(self.index.data, kind, name)

    def metadata(self, source: str) -> dict[str, Any]:
        """What filters can ask of a document; nothing of one that is not there."""
        row = self.row("document", source)
        return {} if row is None else json.loads(self.index.data.document_metadata[row])


class LiveIndex:
    """The current generation of the index in `folder`; `mode`, if there is one, is warmed up before a generation is taken into use."""

    def __init__(self, folder: Path, mode: Mode | None, open_encoder: OpenEncoder, metrics: Metrics) -> None:
        self.folder, self.name = folder, name_of(folder)
        self.open_encoder = cache(open_encoder)
        self._mode, self._metrics = mode, metrics
        self._reloading = asyncio.Lock()
        self._trouble = ""
        self._current = self._open()
        self._tell_number()

    @property
    def current(self) -> Generation:
        """The newest generation that is ready; hold on to it for the length of a request."""
        return self._current

    async def watch(self) -> None:
        """Load what changes on disk, until cancelled."""
        while True:
            await asyncio.sleep(POLL_S)
            await self.refresh()

    async def refresh(self) -> None:
        """Load the index on disk, if it is another one; one that cannot be opened is told of once, and tried again later."""
        async with self._reloading:
            try:
                newer = await asyncio.to_thread(self._newer)
            # Whatever a damaged folder raises, the watch goes on; zipfile and the encoder have errors of their own.
            except Exception as problem:  # noqa: BLE001
                self._leave(f"{problem}" or repr(problem))
                return
            if newer is not None:
                self._current = newer
                self._metrics.swaps.labels("done").inc()
                self._tell_number()
            if newer is not None or self._trouble:
                told = (self.name, self._current.number, self._current.identity[:8])
                LOG.info("%s: generation %d (%s) is in use", *told)
            self._trouble = ""

    def _leave(self, trouble: str) -> None:
        """Go on with the index in use; say why, unless that has been said."""
        if trouble == self._trouble:
            return
        self._trouble = trouble
        self._metrics.swaps.labels("failed").inc()
        LOG.warning("%s: the changed index cannot be loaded yet: %s", self.name, trouble)

    def _tell_number(self) -> None:
        self._metrics.generation_number.labels(self.name).set(self._current.number)

    def _newer(self) -> Generation | None:
        """The index on disk, opened; None when it is the one in use."""
        return None if read_manifest(self.folder).identity == self._current.identity else self._open()

    def _open(self) -> Generation:
        index = open_index(self.folder, self.open_encoder)
        if self._mode is not None:
            warm_up(index, self._mode)
        return Generation(index)


def name_of(folder: Path) -> str:
    """The name of the collection that an index is: that of its folder."""
    return folder.resolve().name


def warm_up(index: Index, mode: Mode) -> None:
    """Have everything loaded that a search in `mode` needs: the encoder, the matrices of the walk."""
    if len(index.data.passage_ids):
        retrieve(index, WARM_UP, RetrieveSettings.model_validate({"mode": mode}))
