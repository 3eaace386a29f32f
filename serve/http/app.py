"""The server put together: middlewares from the outside in (overflow, access log, framing, page, auth, admission), then the routes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig

from graph.encode.encoder import open_encoder
from graph.shared.types import OpenEncoder
from serve.http.answers.messages import messages_router
from serve.http.answers.responses import responses_router
from serve.http.backends.backend import ChatBackend
from serve.http.guard.admission import AdmissionMiddleware
from serve.http.guard.auth import AuthMiddleware
from serve.http.guard.framing import FramingMiddleware
from serve.http.guard.overflow import OverflowMiddleware
from serve.http.routes.chat import chat_router
from serve.http.routes.description import describe_key
from serve.http.routes.documents import documents_router
from serve.http.routes.health import health_router
from serve.http.routes.retrieval import retrieval_router
from serve.http.routes.retriever import Retriever
from serve.http.routes.services import Services
from serve.http.search.embeddings import embeddings_router
from serve.http.search.rerank import rerank_router
from serve.http.search.vector_stores import vector_stores_router
from serve.http.shared.encoding import AsciiJSONResponse
from serve.http.shared.errors import ErrorBody, add_error_handlers
from serve.http.shared.settings import ServerSettings
from serve.http.telemetry.access_log import AccessLogMiddleware
from serve.http.telemetry.collector import open_tracing
from serve.http.telemetry.metrics import Metrics
from serve.live_index import LiveIndex
from serve.page.middleware import PageMiddleware, page_router

ABOUT = "Answers from an index of documents, by an OpenAI-compatible interface; citations are checked by program."
NO_TELEMETRY: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
"""FastAPI's own, which would send whole queries; ours is tracing.py."""


def make_services(
    index: Path, backend: ChatBackend, settings: ServerSettings, open_by_spec: OpenEncoder = open_encoder
) -> Services:
    """What serves the index in a folder, opened and warm; UserError when there is none."""
    metrics, tracing = Metrics(), open_tracing(settings.otlp_endpoint)
    live = LiveIndex(index, settings.mode, open_by_spec, metrics)
    return Services(settings, live, Retriever(live, settings, metrics, tracing), backend, metrics, tracing)


def build_app(services: Services) -> OverflowMiddleware:
    """The ASGI application over `services`; running it starts the engine and watches the index."""
    app = FastAPI(
        title="modegraph",
        description=ABOUT,
        lifespan=_lifespan(services),
        redirect_slashes=False,
        default_response_class=AsciiJSONResponse,
        responses={"4XX": {"model": ErrorBody, "description": "what was wrong with the request"}},
        docs_url=None,
        redoc_url=None,
        telemetry=NO_TELEMETRY,
    )
    of_models = (health_router, chat_router, responses_router, messages_router)
    of_the_index = (retrieval_router, documents_router, vector_stores_router, embeddings_router, rerank_router)
    for make in (*of_models, *of_the_index):
        app.include_router(make(services))
    app.include_router(page_router())
    add_error_handlers(app)
    describe_key(app, services.settings.api_key is not None)
    services.tracing.watch(app)
    admitted = AdmissionMiddleware(app, services.settings, services.metrics)
    authenticated = AuthMiddleware(admitted, services.settings.api_key)
    logged = AccessLogMiddleware(FramingMiddleware(PageMiddleware(authenticated)), services.metrics)
    return OverflowMiddleware(logged, admitted, services.metrics)


def _lifespan(services: Services):  # type: ignore[no-untyped-def]
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        """The engine runs and the index is watched as long as the server does."""
        await services.backend.start()
        watcher = asyncio.create_task(services.live.watch())
        try:
            yield
        finally:
            watcher.cancel()
            with suppress(asyncio.CancelledError):
                await watcher
            await services.backend.close()
            await asyncio.to_thread(services.tracing.close)

    return lifespan
