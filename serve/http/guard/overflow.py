"""429 for what there is no room for, at the least cost: a server that is full must not be busy saying so.

Where the first bytes of a connection hold the request line, it is answered before anything is parsed (a twentieth of the work);
otherwise by the outermost ASGI middleware. Nothing of the request is looked at but its method and path.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.http.guard.admission import AdmissionMiddleware
from serve.http.shared.errors import ApiError, error_response
from serve.http.telemetry.metrics import Metrics

RETRY_AFTER_S = 1
MAX_LINE_BYTES = 1024


class OverflowMiddleware:
    """The outermost ASGI middleware. `answer` is the whole HTTP response to a request that is turned away."""

    def __init__(self, app: ASGIApp, admission: AdmissionMiddleware, metrics: Metrics) -> None:
        self.app = app
        self._admission = admission
        message = "as many requests as this server takes are here already; try again soon"
        full = ApiError(429, "full", message, headers={"Retry-After": str(RETRY_AFTER_S), "Connection": "close"})
        response = error_response(full)
        headers = b"".join(name + b": " + value + b"\r\n" for name, value in response.raw_headers)
        self.answer = b"HTTP/1.1 429 Too Many Requests\r\n" + headers + b"\r\n" + bytes(response.body)
        self._start: Message = {"type": "http.response.start", "status": 429, "headers": response.raw_headers}
        self._body: Message = {"type": "http.response.body", "body": bytes(response.body)}
        self._refused = metrics.errors.labels("full")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._admission.full(scope["method"], scope["path"]):
            self._refused.inc()
            await send(self._start)
            await send(self._body)
        else:
            await self.app(scope, receive, send)

    def refuses(self, data: bytes) -> bool:
        """Whether the server is full and these first bytes of a request ask for what is counted; counts it if so."""
        if self._admission.has_room:
            return False
        parts = data[:MAX_LINE_BYTES].split(b" ", 2)
        refused = len(parts) == 3 and self._admission.full(parts[0].decode("latin-1"), parts[1].decode("latin-1"))
        if refused:
            self._refused.inc()
        return refused
