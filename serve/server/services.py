"""What routes and tools share: made once in app.py, handed to each router."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated
from urllib.parse import quote

from fastapi import Depends, Query
from starlette.requests import Request

from graph.answer.verifier import Verifier
from serve.engines.chat_backend import ChatBackend
from serve.http.errors import no_model, unknown_model
from serve.http.keys import Access, access_of
from serve.http.logs import AuditLog
from serve.http.settings import ServerSettings
from serve.http.telemetry import Metrics, Tracing
from serve.server.collections import Collections, CollectionView
from serve.server.retriever import Retriever


@dataclass(frozen=True)
class Services:
    """The parts of one server; they work within `running()`."""

    settings: ServerSettings
    collections: Collections
    retriever: Retriever
    backend: ChatBackend
    metrics: Metrics
    tracing: Tracing
    audit: AuditLog
    verifier: Verifier
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the server is told to stop (stop.py)."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The engine runs and the indexes are watched until the block ends."""
        await self.backend.start()
        watchers = [asyncio.create_task(each.watch()) for each in self.collections.live.values()]
        try:
            yield
        finally:
            for watcher in watchers:
                watcher.cancel()
            await asyncio.gather(*watchers, return_exceptions=True)
            await self.backend.close()
            await asyncio.to_thread(self.tracing.close)
            self.audit.close()

    def model_names(self, access: Access) -> tuple[str, ...]:
        """What a caller may ask for: the models, and where it sees several collections, each model of each."""
        seen = self.collections.names(access)
        if len(seen) == 1:
            return self.backend.models
        return tuple(f"{model}@{name}" for name in seen for model in self.backend.models)

    def asked_model(self, access: Access, asked: str) -> tuple[str, str | None]:
        """The model and the collection that "MODEL@COLLECTION" names, None for none; ApiError 404 for what the caller cannot ask."""
        models = self.backend.models
        if not models:
            raise no_model()
        if asked in models:
            return asked, None
        for name in self.collections.names(access):
            if asked.endswith(f"@{name}") and asked.removesuffix(f"@{name}") in models:
                return asked.removesuffix(f"@{name}"), name
        raise unknown_model(asked, self.model_names(access))

    def page_url(self, request: Request, seen: CollectionView | None) -> str:
        """The address under which who sent `request` reaches this server's page, of a collection where it sees several."""
        base = (self.settings.public_url or str(request.base_url)).rstrip("/")
        several = seen is not None and len(self.collections.names(seen.access)) > 1
        return f"{base}/?collection={quote(seen.name, safe='')}" if several and seen is not None else f"{base}/"


async def _requested_collection(
    request: Request,
    collection: Annotated[
        str | None, Query(max_length=200, description="which collection, where the server has several")
    ] = None,
) -> CollectionView:
    services: Services = request.app.state.services
    return await services.collections.seen(access_of(request), collection)


RequestedCollection = Annotated[CollectionView, Depends(_requested_collection)]
"""For routes whose address names the collection."""
Caller = Annotated[Access, Depends(access_of)]
"""For routes that ask only who is there."""
