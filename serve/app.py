"""Assembles the server: the middleware, outermost first (overflow, access log, framing, page, auth, admission), then the routes.

`make_services` opens the indexes, `build_app` makes the ASGI application, `server_of` the uvicorn server that runs it: on SIGTERM or
SIGINT, running requests may still finish (http/connections.py). OpenTelemetry's SDK and exporter are imported only if a collector is configured."""

from __future__ import annotations

import logging
import math
import resource
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig

from graph.answer.support import open_verifier
from graph.errors import UserError
from graph.models.encoder import open_encoder
from graph.shared.home import installed_version
from graph.types import OpenEncoder
from serve.engines.chat_backend import ChatBackend
from serve.http.admission import AdmissionMiddleware, FramingMiddleware, OverflowMiddleware
from serve.http.auth import AuthMiddleware, describe_key
from serve.http.connections import DrainingServer, protocol_of
from serve.http.encoding import AsciiJSONResponse
from serve.http.errors import ErrorBody, add_error_handlers
from serve.http.keys import KeyRing
from serve.http.logs import AccessLogMiddleware, AuditLog
from serve.http.routes.chat import chat_router
from serve.http.routes.documents import documents_router
from serve.http.routes.embed_rerank import embeddings_router, rerank_router
from serve.http.routes.feedback import feedback_router
from serve.http.routes.health import health_router
from serve.http.routes.messages import messages_router
from serve.http.routes.questions import questions_router
from serve.http.routes.responses import responses_router
from serve.http.routes.retrieval import retrieval_router
from serve.http.routes.runs import runs_router
from serve.http.routes.vector_stores import vector_stores_router
from serve.http.settings import ServerSettings
from serve.http.telemetry import Metrics, Tracing
from serve.mcp.server import add_mcp
from serve.page.middleware import PageMiddleware, page_router
from serve.server.collections import Collections, LiveIndex, collection_name
from serve.server.retriever import Retriever
from serve.server.services import Services


def open_tracing(endpoint: str | None) -> Tracing:
    """Tracing that sends spans to the collector at `endpoint` (None: nowhere); UserError when OpenTelemetry is not installed."""
    if endpoint is None:
        return Tracing()
    try:
        from serve.http.otlp import OtlpTracing
    except ModuleNotFoundError as problem:
        found = f"--otlp-endpoint {endpoint}: {problem.name} is not installed"
        expected = "OpenTelemetry's SDK, exporter and instrumentation"
        raise UserError(found, expected, "pip install 'modegraph[otel]'") from None
    return OtlpTracing(endpoint)


DESCRIPTION = "Answers from an index of documents, through an OpenAI-compatible API; every citation is checked by code."
ROUTERS = (
    chat_router,
    responses_router,
    messages_router,
    retrieval_router,
    documents_router,
    vector_stores_router,
    embeddings_router,
    rerank_router,
    feedback_router,
    runs_router,
)
NO_TELEMETRY: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
"""Turns off FastAPI's telemetry, which would send whole queries; the server has its own in serve/http/telemetry.py."""


def make_services(
    indexes: Sequence[Path],
    backend: ChatBackend,
    settings: ServerSettings,
    open_by_spec: OpenEncoder = open_encoder,
    warm: bool = True,
) -> Services:
    """The services for the indexes in these folders, opened and, if `warm`, warmed up; UserError for a folder without an index or for duplicate names."""
    metrics, tracing = Metrics(), open_tracing(settings.otlp_endpoint)
    check_names(indexes)
    opener = cache(open_by_spec)
    live = {
        collection_name(folder): LiveIndex(folder, settings.mode if warm else None, opener, metrics)
        for folder in indexes
    }
    collections = Collections(live, settings.write_wait_s)
    retriever, audit = Retriever(settings, metrics, tracing), AuditLog(settings.audit_log)
    verifier = open_verifier(settings.verifier)
    return Services(settings, collections, retriever, backend, metrics, tracing, audit, verifier)


def check_names(indexes: Sequence[Path]) -> None:
    """UserError for two indexes whose folders have the same name, since clients address an index by that name."""
    taken: dict[str, Path] = {}
    for folder in indexes:
        other = taken.setdefault(collection_name(folder), folder)
        if other is folder:
            continue
        if other.resolve() == folder.resolve():
            raise UserError(f"{folder}: given twice", "each index once", "leave one out")
        found = f"{other} and {folder}: folders with the same name"
        raise UserError(found, "a different name for each index", "rename one of the folders")


def build_app(services: Services, only_mcp: bool = False) -> OverflowMiddleware:
    """The ASGI application of the server; running it starts the engine and watches the indexes for changes.

    With `only_mcp` its only routes are /mcp, those of routes/health.py, and /openapi.json.
    """
    app = FastAPI(
        title="modegraph",
        version=installed_version("modegraph"),
        description=DESCRIPTION,
        redirect_slashes=False,
        default_response_class=AsciiJSONResponse,
        responses={"4XX": {"model": ErrorBody, "description": "what was wrong with the request"}},
        docs_url=None,
        redoc_url=None,
        telemetry=NO_TELEMETRY,
    )
    app.include_router(health_router(services))
    if not only_mcp:
        for make in ROUTERS:
            app.include_router(make(services))
        app.include_router(questions_router())
        app.include_router(page_router())
    app.state.services = services
    mcp = add_mcp(app, services)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with services.running(), mcp.manager.run():
            yield

    app.router.lifespan_context = lifespan
    add_error_handlers(app)
    ring = KeyRing(services.settings.keys) if services.settings.keys is not None else None
    describe_key(app, services.settings.api_key is not None or ring is not None)
    services.tracing.watch(app)
    admission = AdmissionMiddleware(app, services.settings, services.metrics)
    auth = AuthMiddleware(admission, services.settings.api_key, ring)
    framed = FramingMiddleware(auth if only_mcp else PageMiddleware(auth))
    access_log = AccessLogMiddleware(framed, services.metrics)
    return OverflowMiddleware(access_log, admission, services.metrics)


LOG = logging.getLogger("modegraph.serve")
RESERVED_FILES = 256
"""Open files reserved for everything other than client connections: the index, the store, connections to the model's server."""


def server_of(
    app: OverflowMiddleware, services: Services, announce: Callable[[str], None] = lambda url: None
) -> uvicorn.Server:
    """A uvicorn server, not yet running; it calls `announce` with its URL once it listens.

    On SIGTERM or SIGINT it drains (http/connections.py): running requests get `drain_s` more seconds.
    """
    settings = services.settings
    max_connections = connections_that_fit(settings.max_connections)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=protocol_of(app, settings.idle_timeout_s, max_connections),
        ws="none",
        lifespan="on",
        access_log=False,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        limit_concurrency=max_connections + 1,
        timeout_keep_alive=math.ceil(settings.idle_timeout_s),
        timeout_graceful_shutdown=max(1, round(settings.drain_s)),
    )
    return DrainingServer(config, services.stopping, settings.unready_s, announce)


def connections_that_fit(requested: int) -> int:
    """`requested`, or the limit on open files less RESERVED_FILES if that is lower (which is logged); at least 1.

    A soft limit that is too low is raised as far as the hard limit allows.
    """
    needed = requested + RESERVED_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return requested
    raised = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft < raised:
        with suppress(OSError, ValueError):  # macOS may allow less than its hard limit.
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
    if soft >= needed:
        return requested
    fitting = max(1, soft - RESERVED_FILES)
    LOG.warning("at most %d connections, not %d: the limit on open files is %d (ulimit -Hn)", fitting, requested, soft)
    return fitting


def log_to_stderr() -> None:
    """Log modegraph's messages and, from libraries, only warnings, all with timestamps (an HTTP client would otherwise log the URL of every request)."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("modegraph").setLevel(logging.INFO)
