"""One line a request: method, route, status, milliseconds. No header, no query, no body; whose key it was, by name. The same counts go to the metrics."""

from __future__ import annotations

import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.http.shared.access import FIELD
from serve.http.telemetry.metrics import Metrics

LOG = logging.getLogger("modegraph.access")


class AccessLogMiddleware:
    """Just inside `OverflowMiddleware`, around all others."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        status, code = 0, ""

        async def watched(message: Message) -> None:
            nonlocal status, code
            if message["type"] == "http.response.start":
                status = message["status"]
                found = [value for name, value in message.get("headers", ()) if name == b"x-error-code"]
                code = found[0].decode("ascii") if found else ""
            await send(message)

        try:
            await self.app(scope, receive, watched)
        finally:
            route = getattr(scope.get("route"), "path", "") or "(none)"
            key = scope[FIELD].key if FIELD in scope else ""
            self._metrics.requests.labels(route, str(status or "gone")).inc()
            if key:
                self._metrics.key_requests.labels(key, str(status or "gone")).inc()
            if code:
                self._metrics.errors.labels(code).inc()
            milliseconds = 1000 * (time.perf_counter() - started)
            told = (scope["method"], route, status or "gone", milliseconds, code, f"key {key}" if key else "")
            LOG.info("%s %s %s %.0f ms %s %s", *told)
