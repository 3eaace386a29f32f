"""What the routes share: made once in app.py, handed to each router."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request

from serve.http.backends.backend import ChatBackend
from serve.http.routes.retriever import Retriever
from serve.http.shared.settings import ServerSettings
from serve.http.telemetry.metrics import Metrics
from serve.http.telemetry.tracing import Tracing
from serve.live_index import LiveIndex


@dataclass(frozen=True)
class Services:
    """The parts of one server."""

    settings: ServerSettings
    live: LiveIndex
    retriever: Retriever
    backend: ChatBackend
    metrics: Metrics
    tracing: Tracing

    def base_url(self, request: Request) -> str:
        """The address, without a slash, under which who sent `request` reaches this server's page."""
        return (self.settings.public_url or str(request.base_url)).rstrip("/")
