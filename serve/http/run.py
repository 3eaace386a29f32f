"""The server as a process: uvicorn over the application, logging, and a stop that lets running requests end."""

from __future__ import annotations

import logging
import math
import resource

import uvicorn

from serve.http.guard.connections import protocol_of
from serve.http.guard.overflow import OverflowMiddleware
from serve.http.routes.services import Services
from serve.http.stop import LeavingServer

OTHER_FILES = 256
"""Open files that are no connections of clients: the index, the store, those to the model's server."""


def server_of(app: OverflowMiddleware, services: Services) -> uvicorn.Server:
    """A uvicorn server, not yet running; SIGTERM and SIGINT make it stop as stop.py says, and give requests `drain_s` to end."""
    settings = services.settings
    most = connections_that_fit(settings.max_connections)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=protocol_of(app, settings.idle_timeout_s, most),
        ws="none",
        lifespan="on",
        access_log=False,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        limit_concurrency=most + 1,
        timeout_keep_alive=math.ceil(settings.idle_timeout_s),
        timeout_graceful_shutdown=max(1, round(settings.drain_s)),
    )
    return LeavingServer(config, services.leaving, settings.unready_s)


def connections_that_fit(wanted: int) -> int:
    """`wanted`, or fewer where this process may not have so many files open."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if allowed == resource.RLIM_INFINITY else max(1, min(wanted, allowed - OTHER_FILES))


def log_to_stderr() -> None:
    """Our own lines with their time; others' (an HTTP client's would repeat addresses) only when something is wrong."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("modegraph").setLevel(logging.INFO)
