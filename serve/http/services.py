"""What the routes share: made once in app.py, handed to each router."""

from __future__ import annotations

from dataclasses import dataclass

from serve.http.backend import ChatBackend
from serve.http.live_index import LiveIndex
from serve.http.metrics import Metrics
from serve.http.retriever import Retriever
from serve.http.settings import ServerSettings
from serve.http.tracing import Tracing


@dataclass(frozen=True)
class Services:
    """The parts of one server."""

    settings: ServerSettings
    live: LiveIndex
    retriever: Retriever
    backend: ChatBackend
    metrics: Metrics
    tracing: Tracing
