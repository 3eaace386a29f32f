"""The server put together: middlewares from the outside in (overflow, access log, framing, page, auth, admission), then the routes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig

from graph.encode.encoder import open_encoder
from graph.shared.errors import UserError
from graph.shared.home import installed_version
from graph.shared.types import OpenEncoder
from graph.verify.verifier import open_verifier
from serve.http.answers.messages import messages_router
from serve.http.answers.responses import responses_router
from serve.http.backends.backend import ChatBackend
from serve.http.documents.documents import documents_router
from serve.http.feedback.feedback import feedback_router
from serve.http.guard.admission import AdmissionMiddleware
from serve.http.guard.auth import AuthMiddleware
from serve.http.guard.framing import FramingMiddleware
from serve.http.guard.key_ring import KeyRing
from serve.http.guard.overflow import OverflowMiddleware
from serve.http.mcp.route import McpRoute, add_mcp
from serve.http.routes.chat import chat_router
from serve.http.routes.collections import Collections
from serve.http.routes.description import describe_key
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
from serve.http.telemetry.audit import AuditLog
from serve.http.telemetry.collector import open_tracing
from serve.http.telemetry.metrics import Metrics
from serve.live_index import LiveIndex, name_of
from serve.page.middleware import PageMiddleware, page_router

ABOUT = "Answers from an index of documents, by an OpenAI-compatible interface; citations are checked by program."
OF_MODELS = (chat_router, responses_router, messages_router)
OF_THE_INDEX = (
    retrieval_router,
    documents_router,
    vector_stores_router,
    embeddings_router,
    rerank_router,
    feedback_router,
)
NO_TELEMETRY: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
"""FastAPI's own, which would send whole queries; ours is tracing.py."""


def make_services(
    indexes: Sequence[Path],
    backend: ChatBackend,
    settings: ServerSettings,
    open_by_spec: OpenEncoder = open_encoder,
    warm: bool = True,
) -> Services:
    """What serves the indexes in folders, opened and, unless somebody else sees to that, warm; UserError for a folder without one, and for two of one name."""
    metrics, tracing = Metrics(), open_tracing(settings.otlp_endpoint)
    check_names(indexes)
    opener = cache(open_by_spec)
    live = {name_of(folder): LiveIndex(folder, settings.mode if warm else None, opener, metrics) for folder in indexes}
    collections = Collections(live, settings.write_wait_s)
    retriever, audit = Retriever(settings, metrics, tracing), AuditLog(settings.audit_log)
    verifier = open_verifier(settings.verifier)
    return Services(settings, collections, retriever, backend, metrics, tracing, audit, verifier)


def check_names(indexes: Sequence[Path]) -> None:
    """UserError for two indexes whose folders have the same name, by which clients know them."""
    taken: dict[str, Path] = {}
    for folder in indexes:
        other = taken.setdefault(name_of(folder), folder)
        if other is not folder:
            raise UserError(f"{other} and {folder}: folders of one name", "a name for each index", "rename one")


def build_app(services: Services, only_mcp: bool = False) -> OverflowMiddleware:
    """The ASGI application over `services`; running it starts the engine and watches the index.

    With `only_mcp` it has no routes but /mcp, and those that tell how the server is.
    """
    app = FastAPI(
        title="modegraph",
        version=installed_version("modegraph"),
        description=ABOUT,
        redirect_slashes=False,
        default_response_class=AsciiJSONResponse,
        responses={"4XX": {"model": ErrorBody, "description": "what was wrong with the request"}},
        docs_url=None,
        redoc_url=None,
        telemetry=NO_TELEMETRY,
    )
    app.include_router(health_router(services))
    if not only_mcp:
        for make in (*OF_MODELS, *OF_THE_INDEX):
            app.include_router(make(services))
        app.include_router(page_router())
    app.state.services = services
    app.router.lifespan_context = _lifespan(services, add_mcp(app, services))
    add_error_handlers(app)
    ring = KeyRing(services.settings.keys) if services.settings.keys is not None else None
    describe_key(app, services.settings.api_key is not None or ring is not None)
    services.tracing.watch(app)
    admitted = AdmissionMiddleware(app, services.settings, services.metrics)
    authenticated = AuthMiddleware(admitted, services.settings.api_key, ring)
    logged = AccessLogMiddleware(FramingMiddleware(PageMiddleware(authenticated)), services.metrics)
    return OverflowMiddleware(logged, admitted, services.metrics)


def _lifespan(services: Services, mcp: McpRoute):  # type: ignore[no-untyped-def]
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with services.running(), mcp.manager.run():
            yield

    return lifespan
