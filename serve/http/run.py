"""The server as a process: uvicorn over the application, logging, and a stop that lets running requests end."""

from __future__ import annotations

import logging

import uvicorn

from serve.http.overflow import Overflow, protocol_of
from serve.http.settings import ServerSettings

MAX_CONNECTIONS = 2_000


def server_of(app: Overflow, settings: ServerSettings) -> uvicorn.Server:
    """A uvicorn server, not yet running; SIGTERM and SIGINT make it stop listening and give requests `drain_s` to end."""
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=protocol_of(app),
        lifespan="on",
        access_log=False,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=max(1, round(settings.drain_s)),
    )
    return uvicorn.Server(config)


def log_to_stderr() -> None:
    """Our own lines with their time; the HTTP client's, which would repeat addresses, only when something is wrong."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for name in ("httpx2", "httpcore", "openai"):
        logging.getLogger(name).setLevel(logging.WARNING)
