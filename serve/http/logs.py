"""The access log (method, route, status, milliseconds, error code and key name of each request that `OverflowMiddleware` lets through) and the audit log.

The audit log contains one line of JSON for each addition or deletion of documents that reaches its route, whether done,
refused or failed; the line is on disk before the client gets the response. A request whose key lacks the scope `write` does not reach the route."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from graph.errors import UserError
from serve.http.keys import ACCESS_FIELD
from serve.http.telemetry import Metrics

LOG = logging.getLogger("modegraph.access")


class AccessLogMiddleware:
    """Logs and counts each request that `OverflowMiddleware` lets through; wraps all other middleware except that one."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        status, code = 0, ""

        async def note_and_send(message: Message) -> None:
            nonlocal status, code
            if message["type"] == "http.response.start":
                status = message["status"]
                codes = [value for name, value in message.get("headers", ()) if name == b"x-error-code"]
                code = codes[0].decode("ascii") if codes else ""
            await send(message)

        try:
            await self.app(scope, receive, note_and_send)
        finally:
            route = getattr(scope.get("route"), "path", "") or "(none)"
            key = scope[ACCESS_FIELD].key if ACCESS_FIELD in scope else ""
            self._metrics.requests.labels(route, str(status or "gone")).inc()
            if key:
                self._metrics.key_requests.labels(key, str(status or "gone")).inc()
            if code:
                self._metrics.errors.labels(code).inc()
            milliseconds = 1000 * (time.perf_counter() - started)
            fields = (scope["method"], route, status or "gone", milliseconds, code, f"key {key}" if key else "")
            LOG.info("%s %s %s %.0f ms %s %s", *fields)


class AuditLog:
    """Appends lines to `file`; does nothing if it is None."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        try:
            if file is not None:
                file.open("a").close()
        except OSError as problem:
            raise UserError(f"{file}: {problem.strerror}", "a writable file", "check --audit-log") from None

    def record(self, key: str, key_id: str, collection: str, action: str, sources: Sequence[str], outcome: str) -> None:
        """Log a change, or an attempt at one. `key` is "" unless a key of the key file was used; `outcome` is "done", "stored" (but not in use yet), an
        error code, "failed" or "gone" (cancelled before it began).
        """
        if self._file is None:
            return
        line = {
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "key": key,
            "key_id": key_id,
            "collection": collection,
            "action": action,
            "sources": list(sources),
            "outcome": outcome,
        }
        with self._file.open("a", encoding="ascii") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())
