"""The indexes of one server by name: the generation in use, the queue of writes, and the view of one caller.

A newer index replaces the one in use as soon as it is on disk; a running request finishes with the generation that it started with. Waiting
writes share one turn, so the arrays are derived only once, however many writes there are; servers and commands take turns fairly
(graph/store/lock.py)."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Event, Lock
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
from serve.http.errors import ApiError, failed_write
from serve.http.keys import Access
from serve.http.telemetry import Metrics
from serve.server.listing import Listing
from serve.server.proposals import ProposedQuestion, propose_questions, suggest_questions

LOG = logging.getLogger("modegraph.serve")
POLL_S = 0.5
MAX_VIEWS = 32
"""The largest number of cached views of one generation; there is one view for each set of conditions of a key."""
SUGGESTIONS = 3
WARM_UP_QUESTION = "What is this about?"


@dataclass(frozen=True)
class Generation:
    """One opened generation of an index, or the part of it whose documents meet the conditions `where`."""

    index: Index
    where: tuple[Condition, ...] = ()
    _views: dict[tuple[Condition, ...], Generation] = field(default_factory=dict, repr=False, compare=False)
    _views_lock: Lock = field(default_factory=Lock, repr=False, compare=False)

    @property
    def number(self) -> int:
        """The number of times that this index has been written; an index that replaces it may have the same number."""
        return self.index.manifest.generation

    @cached_property
    def identity(self) -> str:
        """The identity of the index (graph/store/manifest.py), or of this part of it."""
        data = self.index.data
        return content_id(*data.document_sources, *data.passage_ids) if self.where else self.index.manifest.identity

    @cached_property
    def listing(self) -> Listing:
        """The documents as a list for readers."""
        return Listing(self.index.data)

    @cached_property
    def suggestions(self) -> tuple[str, ...]:
        """Questions that the documents answer."""
        return suggest_questions(self.index, SUGGESTIONS)

    @cached_property
    def proposals(self) -> tuple[ProposedQuestion, ...]:
        """Questions with answers, for a reader to approve; computing them takes seconds."""
        return propose_questions(self.index)

    def restricted_to(self, where: tuple[Condition, ...]) -> Generation:
        """The part with the documents that meet the conditions; this generation caches the last MAX_VIEWS parts."""
        if not where:
            return self
        if (view := self._views.get(where)) is None:
            part = Generation(self.index.only(where), where)
            with self._views_lock:
                view = self._views.setdefault(where, part)
                if len(self._views) > MAX_VIEWS:
                    del self._views[next(iter(self._views))]
        return view

    def row(self, kind: NodeKind, name: str) -> int | None:
        """The row of a document by its source, or of another node by its id; None if there is none."""
        return row_of(self.index.data, kind, name)

    def metadata(self, source: str) -> dict[str, Any]:
        """The metadata of a document, which filters can use; empty for an unknown document."""
        row = self.row("document", source)
        return {} if row is None else json.loads(self.index.data.document_metadata[row])


class LiveIndex:
    """The current generation of the index in `folder`; `mode`, if given, is warmed up before a generation is used.

    `open_encoder` is called for each generation, so it should cache the encoder.
    """

    def __init__(self, folder: Path, mode: Mode | None, open_encoder: OpenEncoder, metrics: Metrics) -> None:
        self.folder, self.name = folder, collection_name(folder)
        self.open_encoder = open_encoder
        self._mode, self._metrics = mode, metrics
        self._reloading = asyncio.Lock()
        self._load_error = ""
        self.current = self._open()
        """The newest generation that is ready; keep a reference for the duration of a request."""
        self._publish_generation()

    async def watch(self) -> None:
        """Reload the index whenever it changes on disk, until cancelled."""
        while True:
            await asyncio.sleep(POLL_S)
            await self.refresh()

    async def refresh(self) -> None:
        """Load the index on disk if it has changed; a failed load is logged once and tried again later."""
        async with self._reloading:
            try:
                newer = await asyncio.to_thread(self._open_newer)
            # Keep watching, whatever exception a damaged folder causes; zipfile and the encoder raise their own types.
            except Exception as problem:  # noqa: BLE001
                error = f"{problem}" or repr(problem)
                if error != self._load_error:
                    self._load_error = error
                    self._metrics.swaps.labels("failed").inc()
                    LOG.warning("%s: the changed index cannot be loaded yet: %s", self.name, error)
                return
            if newer is not None:
                self.current = newer
                self._metrics.swaps.labels("done").inc()
                self._publish_generation()
            if newer is not None or self._load_error:
                fields = (self.name, self.current.number, self.current.identity[:8])
                LOG.info("%s: generation %d (%s) is in use", *fields)
            self._load_error = ""

    def _publish_generation(self) -> None:
        self._metrics.generation_number.labels(self.name).set(self.current.number)

    def _open_newer(self) -> Generation | None:
        """The index on disk, opened; None when it is already in use."""
        return None if read_manifest(self.folder).identity == self.current.identity else self._open()

    def _open(self) -> Generation:
        index = open_index(self.folder, self.open_encoder)
        if self._mode is not None:
            warm_up(index, self._mode)
        return Generation(index)


def collection_name(folder: Path) -> str:
    """The name of an index's collection: that of its folder."""
    return folder.resolve().name


def warm_up(index: Index, mode: Mode) -> None:
    """Load everything that a search in `mode` needs, such as the encoder."""
    if len(index.data.passage_ids):
        retrieve(index, WARM_UP_QUESTION, RetrieveSettings.model_validate({"mode": mode}))


RETRY_AFTER_S = 10


@dataclass(frozen=True)
class _Job:
    edit: Edit
    done: Future[EditResult]


class WriteQueue:
    """The queue of writes to the index of `live`; a write that has waited for `wait_s` is refused."""

    def __init__(self, live: LiveIndex, wait_s: float) -> None:
        self._live, self._wait_s = live, wait_s
        self._waiting: deque[_Job] = deque()
        self._thread = ThreadPoolExecutor(1, "writing")

    async def write(self, edit: Edit, result: Future[EditResult] | None = None) -> EditResult:
        """Apply the edit, complete `result` with its outcome, and switch to the changed index.

        ApiError 409 when the edit's turn does not come in time, or as in `failed_write`. An edit that is cancelled before its turn is not applied.
        """
        job = _Job(edit, result or Future())
        self._waiting.append(job)
        self._thread.submit(self._take_turn)
        done = asyncio.wrap_future(job.done)
        try:
            await asyncio.wait({done}, timeout=self._wait_s)
            if not done.done() and job.done.cancel():
                message = f"other writes have kept the index busy for {self._wait_s:g} s; try again later"
                raise ApiError(409, "being_written", message, headers={"Retry-After": str(RETRY_AFTER_S)})
            edited = await done
        finally:
            job.done.cancel()
        await self._live.refresh()
        return edited

    def _take_turn(self) -> None:
        """Wait for the turn, and apply all waiting edits; stop once no caller waits for them."""
        jobs: list[_Job] = []
        stored = Event()

        def take() -> Sequence[Edit]:
            while self._waiting:
                job = self._waiting.popleft()
                if job.done.set_running_or_notify_cancel():
                    jobs.append(job)
            return [job.edit for job in jobs]

        if self._is_abandoned():
            return
        try:
            live = self._live
            results = edit_index(live.folder, take, live.open_encoder, open_model, self._is_abandoned, stored.set)
        except IndexBusy:
            return
        except Exception as problem:  # noqa: BLE001  (passed on to the waiting callers)
            if not jobs:  # It failed before they were taken.
                take()
            error = failed_write(problem, stored.is_set())
            for job in jobs:
                job.done.set_exception(error)
        else:
            for job, result in zip(jobs, results, strict=True):
                job.done.set_result(result)

    def _is_abandoned(self) -> bool:
        """Whether no caller waits for an edit any more."""
        return all(job.done.cancelled() for job in self._waiting.copy())


STORE_FIELD = "vector_store_id"
"""OpenAI's field for the name of a collection."""


@dataclass(frozen=True)
class CollectionView:
    """A collection as visible to one caller, in one generation: keep a reference for the duration of a request."""

    name: str
    generation: Generation
    access: Access


class Collections:
    """The collections of one server, named after their folders."""

    def __init__(self, live: Mapping[str, LiveIndex], write_wait_s: float) -> None:
        self.live = dict(live)
        self.writing = {name: WriteQueue(index, write_wait_s) for name, index in live.items()}

    def names(self, access: Access) -> tuple[str, ...]:
        """The collections visible to a caller, in the order of the command line."""
        return tuple(name for name in self.live if access.collections is None or name in access.collections)

    def resolve_name(self, access: Access, name: str | None, field: str = "collection") -> str:
        """The collection `name`, or the only visible one if `name` is None; `field` is the request's field for it.

        ApiError 404 if no visible collection has the name, whether or not a hidden one has it; 400 if `name` is None and the number of visible
        collections is not one.
        """
        visible = self.names(access)
        if name is None and len(visible) == 1:
            return visible[0]
        available = ", ".join(visible) or "none"
        if name is None:
            raise ApiError(400, "which_collection", f"name a collection; available: {available}", field)
        if name not in visible:
            label = field.removesuffix("_id").replace("_", " ")
            message = f"{label} {name[:80]!r} is not served here; available: {available}"
            raise ApiError(404, f"no_such_{label.replace(' ', '_')}", message, field)
        return name

    async def view(self, access: Access, name: str | None, field: str = "collection") -> CollectionView:
        """The caller's current view of a collection; ApiError as in `resolve_name`."""
        name = self.resolve_name(access, name, field)
        generation = self.live[name].current
        if access.where:
            generation = await asyncio.to_thread(generation.restricted_to, access.where)
        return CollectionView(name, generation, access)
