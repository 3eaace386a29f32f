"""Services shared by routes and tools: created once in app.py, passed to each router."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
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
    """The parts of one server, usable only within `running()`."""

    settings: ServerSettings
    collections: Collections
    retriever: Retriever
    backend: ChatBackend
    metrics: Metrics
    tracing: Tracing
    audit: AuditLog
    verifier: Verifier
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the server is stopping (http/connections.py)."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the engine and watch the indexes until the block ends."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(asyncio.to_thread, self.tracing.close)
            await self.backend.start()
            stack.push_async_callback(self.backend.close)
            watchers = [asyncio.create_task(index.watch()) for index in self.collections.live.values()]
            try:
                yield
            finally:
                for watcher in watchers:
                    watcher.cancel()
                await asyncio.gather(*watchers, return_exceptions=True)

    def model_names(self, access: Access) -> tuple[str, ...]:
        """The model names for a caller: the models, or, if several collections are visible, each model combined with each collection."""
        visible = self.collections.names(access)
        if len(visible) == 1:
            return self.backend.models
        return tuple(f"{model}@{name}" for name in visible for model in self.backend.models)

    def resolve_model(self, access: Access, requested: str) -> tuple[str, str | None]:
        """The model and the collection of "MODEL@COLLECTION" (None for a bare MODEL).

        ApiError 404 for any other name, or for a collection that the caller cannot see.
        """
        if requested in self.backend.models:
            return requested, None
        for collection in self.collections.names(access):
            model = requested.removesuffix(f"@{collection}")
            if model in self.backend.models:
                return model, collection
        raise unknown_model(requested, self.model_names(access)) if self.backend.models else no_model()

    def page_url(self, request: Request, view: CollectionView | None) -> str:
        """The URL of this server's page for the sender of `request`, with the collection if several are visible."""
        base = (self.settings.public_url or str(request.base_url)).rstrip("/")
        if view is None or len(self.collections.names(view.access)) < 2:
            return f"{base}/"
        return f"{base}/?collection={quote(view.name, safe='')}"


async def _requested_collection(
    request: Request,
    collection: Annotated[
        str | None, Query(max_length=200, description="name of the collection, if the server has several")
    ] = None,
) -> CollectionView:
    services: Services = request.app.state.services
    return await services.collections.view(access_of(request), collection)


RequestedCollection = Annotated[CollectionView, Depends(_requested_collection)]
"""For routes with the collection in the query."""
Caller = Annotated[Access, Depends(access_of)]
"""For routes that need only the caller's rights."""
