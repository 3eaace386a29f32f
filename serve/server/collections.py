"""The indexes that one server serves, by name: the generation in use, the queue of those who change it, and each as one caller sees it.

A newer index takes the place of the one in use as soon as it lies on disk; a request that began with the old one ends with it. Those who
change an index wait for one turn, fair among servers and commands (graph/store/lock.py), and have it together: the arrays are derived anew
once a turn, however many come."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from graph.build.build import Edit, EditResult, edit_index
from graph.index.filters import Condition
from graph.index.index import Index, NodeKind, open_index, row_of
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.retrieve import retrieve
from graph.shared.ids import content_id
from graph.shared.modes import Mode
from graph.store.lock import IndexBusy
from graph.store.manifest import read_manifest
from graph.types import OpenEncoder
from serve.engines import open_model
from serve.http.errors import ApiError
from serve.http.keys import Access
from serve.http.telemetry import Metrics

LOG = logging.getLogger("modegraph.serve")
POLL_S = 0.5
MAX_VIEWS = 32
"""Parts of one generation that are kept: for so many different conditions of keys."""
WARM_UP_QUESTION = "What is this about?"


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
            while len(self._views) >= MAX_VIEWS:
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
        self.folder, self.name = folder, collection_name(folder)
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


def collection_name(folder: Path) -> str:
    """The name of the collection that an index is: that of its folder."""
    return folder.resolve().name


def warm_up(index: Index, mode: Mode) -> None:
    """Have everything loaded that a search in `mode` needs: the encoder, the matrices of the walk."""
    if len(index.data.passage_ids):
        retrieve(index, WARM_UP_QUESTION, RetrieveSettings.model_validate({"mode": mode}))


RETRY_AFTER_S = 10


@dataclass(frozen=True)
class _Job:
    edit: Edit
    done: Future[EditResult] = field(default_factory=Future)


class WriteQueue:
    """The line of those who want to change the index of `live`; who has waited for `wait_s` in vain is sent away."""

    def __init__(self, live: LiveIndex, wait_s: float) -> None:
        self._live, self._wait_s = live, wait_s
        self._waiting: deque[_Job] = deque()
        self._thread = ThreadPoolExecutor(1, "writing")

    async def write(self, edit: Edit) -> EditResult:
        """Do the edit, and take the changed index into use; ApiError 409 when its turn did not come in time.

        One that is cancelled before its turn is not done.
        """
        job = _Job(edit)
        self._waiting.append(job)
        self._thread.submit(self._take_turn)
        done = asyncio.wrap_future(job.done)
        try:
            await asyncio.wait({done}, timeout=self._wait_s)
            if not done.done() and job.done.cancel():
                raise ApiError(
                    409,
                    "being_written",
                    f"the index has been written by others for {self._wait_s:g} s; try again when that is done",
                    headers={"Retry-After": str(RETRY_AFTER_S)},
                )
            edited = await done
        finally:
            job.done.cancel()
        await self._live.refresh()
        return edited

    def _take_turn(self) -> None:
        """Wait for the turn, and do what waits when it comes."""
        jobs: list[_Job] = []

        def take() -> Sequence[Edit]:
            while self._waiting:
                job = self._waiting.popleft()
                if job.done.set_running_or_notify_cancel():
                    jobs.append(job)
            return [job.edit for job in jobs]

        if self._nobody_waits():
            return
        try:
            live = self._live
            done = edit_index(live.folder, take, live.open_encoder, open_model, give_up=self._nobody_waits)
        except IndexBusy:
            return
        except Exception as problem:  # noqa: BLE001  (it is theirs who wait for it)
            take()
            for job in jobs:
                job.done.set_exception(problem)
        else:
            for job, edited in zip(jobs, done, strict=True):
                job.done.set_result(edited)

    def _nobody_waits(self) -> bool:
        return all(job.done.cancelled() for job in self._waiting.copy())


STORE_FIELD = "vector_store_id"
"""The field that names a collection, as OpenAI's clients know it."""


@dataclass(frozen=True)
class CollectionView:
    """A collection as one caller sees it, in one generation: hold on to it for the length of a request."""

    name: str
    generation: Generation
    access: Access


class Collections:
    """The collections of one server; each is named as its folder."""

    def __init__(self, live: Mapping[str, LiveIndex], write_wait_s: float) -> None:
        self.live = dict(live)
        self.writing = {name: WriteQueue(each, write_wait_s) for name, each in live.items()}

    def names(self, access: Access) -> tuple[str, ...]:
        """Those that a caller sees, in the order in which they were given."""
        return access.seen_of(self.live)

    def named(self, access: Access, asked: str | None, place: str = "collection") -> str:
        """The collection that `asked` names, or the only one there is; `place` is the field that names it.

        ApiError 404 for any other name, with the same words whether it is not there or not for this caller; 400 where one of several
        (or of none) must be named.
        """
        known = self.names(access)
        if asked is None and len(known) == 1:
            return known[0]
        there = ", ".join(known) or "none"
        if asked is None:
            raise ApiError(400, "which_collection", f"say which collection is asked; there is: {there}", place)
        if asked not in known:
            words = place.removesuffix("_id").replace("_", " ")
            told = f"{words} {asked[:80]!r} is not served here; there is: {there}"
            raise ApiError(404, f"no_such_{words.replace(' ', '_')}", told, place)
        return asked

    async def seen(self, access: Access, asked: str | None, place: str = "collection") -> CollectionView:
        """The collection as the caller sees it now; ApiError as `named` raises it."""
        name = self.named(access, asked, place)
        generation = self.live[name].current
        if access.where:
            generation = await asyncio.to_thread(generation.only, access.where)
        return CollectionView(name, generation, access)
