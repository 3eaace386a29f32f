"""Admission control: limits on running and waiting requests; requests beyond them are answered with 429 before their body is read.

The body of an admitted request is read here, within size and time limits; then the request waits for its turn. It is cancelled, together with its
call to the model, when its client disconnects or, except at /v1/documents, `request_timeout_s` after its body has arrived. A full
server refuses requests at little cost: on receipt of the first bytes if these contain the request line, otherwise in the outermost middleware. A request
whose length is ambiguous is refused, since a proxy in front of this server could parse it differently."""

from __future__ import annotations

import asyncio
from asyncio import Future

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.http.encoding import DONE, SSE, event, named_event
from serve.http.errors import ApiError, error_response
from serve.http.settings import ServerSettings
from serve.http.telemetry import Metrics

LIMITED, UNLIMITED, UPLOADS = "/v1/", "/v1/models", "/v1/documents"
"""Prefixes of paths: LIMITED ones count towards the limits, except UNLIMITED ones; UPLOADS may have a large body."""
MCP = "/mcp"
LAST_EVENT_TIMEOUT_S = 1.0
"""How long the client of a stream that is cut off may take to receive the error event."""


class AdmissionMiddleware:
    """ASGI middleware that applies these limits to requests for /mcp and for everything below /v1/ except the list of models."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, metrics: Metrics) -> None:
        self.app = app
        self._settings, self._errors = settings, metrics.errors
        self._requests = _Slots(settings.capacity + settings.queue, settings.capacity)
        self._writes = _Slots(settings.write_queue, settings.write_queue) if settings.writable else self._requests
        slot_pools = {self._requests, self._writes}
        metrics.waiting.set_function(lambda: sum(slots.admitted - slots.running for slots in slot_pools))
        metrics.running.set_function(lambda: sum(slots.running for slots in slot_pools))

    def is_full(self, method: str, path: str) -> bool:
        """Whether a request with this method and path would be refused because all slots, for running and for waiting requests, are taken."""
        slots = self._slots_for(method, path)
        return is_limited_path(path) and slots.admitted >= slots.limit

    def _slots_for(self, method: str, path: str) -> _Slots:
        """The slots of a request. On a writable server, writes to /v1/documents have their own, so that they neither wait for questions nor delay them."""
        return self._writes if path.startswith(UPLOADS) and method not in ("GET", "HEAD") else self._requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not is_limited_path(scope["path"]):
            await self.app(scope, receive, send)
            return
        slots = self._slots_for(scope["method"], scope["path"])
        slots.admitted += 1
        try:
            body = await self._read_body(scope, receive)
            if body is not None:
                await self._run(scope, body, receive, send, slots)
        except ApiError as problem:
            await error_response(problem)(scope, receive, send)
        finally:
            slots.admitted -= 1

    async def _read_body(self, scope: Scope, receive: Receive) -> bytes | None:
        """The complete body; None when the client has disconnected. ApiError 413 when too long, 408 when too slow."""
        upload = scope["path"].startswith(UPLOADS)
        limit = self._settings.max_upload_bytes if upload else self._settings.max_body_bytes
        try:
            async with asyncio.timeout(self._settings.body_timeout_s):
                return await read_body(scope, receive, limit)
        except TimeoutError:
            message = f"the body did not arrive within {self._settings.body_timeout_s:g} s"
            raise ApiError(408, "slow_body", message, headers={"Connection": "close"}) from None

    async def _run(self, scope: Scope, body: bytes, receive: Receive, send: Send, slots: _Slots) -> None:
        """Run the request when its turn comes, until it is done, its client disconnects, its time is up or the server stops."""
        response = _TrackedResponse(send)
        disconnected: Future[Message] = asyncio.ensure_future(receive())
        work: Future[None] = asyncio.ensure_future(self._in_turn(scope, body, disconnected, response, slots))
        limit = None if scope["path"].startswith(UPLOADS) else self._settings.request_timeout_s
        error: ApiError | None = None
        try:
            await asyncio.wait([work, disconnected], timeout=limit, return_when=asyncio.FIRST_COMPLETED)  # type: ignore[type-var]
            if not work.done() and not disconnected.done():
                error = ApiError(504, "too_long", f"no complete answer within {self._settings.request_timeout_s:g} s")
        except asyncio.CancelledError:
            # uvicorn cancels running requests when the grace period of a stopping server ends.
            message = "the server is stopping; the answer was not completed"
            error = ApiError(503, "stopping", message, headers={"Retry-After": "5"})
        try:
            if not work.done() and not response.complete:
                work.cancel()
                # Sent before the work is awaited, because a stopping server does not wait for the work to end.
                if error is not None and await response.end(error):
                    self._errors.labels(error.code).inc()
                await asyncio.wait({work})
            if error is not None and not response.started:
                raise error
            if not work.cancelled():
                await work
        finally:
            disconnected.cancel()
            work.cancel()

    async def _in_turn(
        self, scope: Scope, body: bytes, disconnected: Future[Message], response: _TrackedResponse, slots: _Slots
    ) -> None:
        unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return unread.pop() if unread else await asyncio.shield(disconnected)

        async with slots.turns:
            slots.running += 1
            try:
                await self.app(scope, replay, response.send)
            finally:
                slots.running -= 1


class _Slots:
    """Slots for `limit` requests, of which at most `running_limit` run at a time."""

    def __init__(self, limit: int, running_limit: int) -> None:
        self.limit, self.turns = limit, asyncio.Semaphore(running_limit)
        self.admitted = self.running = 0


class _TrackedResponse:
    """Tracks which parts of a response have been sent."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = self.complete = False
        self._is_stream = False
        self._last_chunk = b""

    async def send(self, message: Message) -> None:
        self.started = True
        if message["type"] == "http.response.start":
            self._is_stream = Headers(raw=message.get("headers", [])).get("content-type", "").startswith(SSE)
        elif message["type"] == "http.response.body":
            self.complete = self.complete or not message.get("more_body", False)
            self._last_chunk = message.get("body", b"") or self._last_chunk
        await self._send(message)

    async def end(self, problem: ApiError) -> bool:
        """Send the error as the last event of an open stream; return whether a stream was open and the event was sent."""
        if not self._is_stream or self.complete:
            return False
        gap = b"" if self._last_chunk.endswith(b"\n\n") else b"\n\n"
        named = named_event({"type": "error", **problem.body()}) if self._last_chunk.startswith(b"event: ") else None
        try:
            async with asyncio.timeout(LAST_EVENT_TIMEOUT_S):
                await self.send({"type": "http.response.body", "body": gap + (named or event(problem.body())) + DONE})
        except TimeoutError:
            return False
        return True


def is_limited_path(path: str) -> bool:
    """Whether requests for a path count towards the limits."""
    return path == MCP or (path.startswith(LIMITED) and not path.startswith(UNLIMITED))


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes | None:
    """A body of at most `limit` bytes; None when the client has disconnected. ApiError 413 as soon as it is known to be longer."""
    declared_length = Headers(scope=scope).get("content-length", "0")
    reason = f"the body is longer than {limit:,} bytes"
    too_long = ApiError(413, "too_long_body", reason, headers={"Connection": "close"})
    if declared_length.isdecimal() and int(declared_length[:20]) > limit:
        raise too_long
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            raise too_long
        if not message.get("more_body", False):
            return b"".join(parts)


RETRY_AFTER_S = 1
MAX_LINE_BYTES = 1024


class OverflowMiddleware:
    """The outermost ASGI middleware: answers requests for limited paths with 429 while the server is full.

    `answer` is the complete HTTP response to a refused request.
    """

    def __init__(self, app: ASGIApp, admission: AdmissionMiddleware, metrics: Metrics) -> None:
        self.app = app
        self._admission = admission
        message = "the server has reached its request limit; try again soon"
        full = ApiError(429, "full", message, headers={"Retry-After": str(RETRY_AFTER_S), "Connection": "close"})
        response = error_response(full)
        headers = b"".join(name + b": " + value + b"\r\n" for name, value in response.raw_headers)
        self.answer = b"HTTP/1.1 429 Too Many Requests\r\n" + headers + b"\r\n" + bytes(response.body)
        self._start: Message = {"type": "http.response.start", "status": 429, "headers": response.raw_headers}
        self._body: Message = {"type": "http.response.body", "body": bytes(response.body)}
        self._refused_counter = metrics.errors.labels("full")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._admission.is_full(scope["method"], scope["path"]):
            self._refused_counter.inc()
            await send(self._start)
            await send(self._body)
        else:
            await self.app(scope, receive, send)

    def refuses(self, data: bytes) -> bool:
        """Whether the server is full and these first bytes of a request are for a limited path; if so, the refusal is counted."""
        parts = data[:MAX_LINE_BYTES].split(b" ", 2)
        refused = len(parts) == 3 and self._admission.is_full(parts[0].decode("latin-1"), parts[1].decode("latin-1"))
        if refused:
            self._refused_counter.inc()
        return refused


class FramingMiddleware:
    """Answers 400 and closes the connection for a request with both Content-Length and Transfer-Encoding, or with Transfer-Encoding in HTTP/1.0."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and is_ambiguous(Headers(scope=scope), scope["http_version"]):
            message = (
                "the length of the body is ambiguous: send Content-Length or, in HTTP/1.1, Transfer-Encoding, not both"
            )
            problem = ApiError(400, "two_lengths", message, headers={"Connection": "close"})
            await error_response(problem)(scope, receive, send)
        else:
            await self.app(scope, receive, send)


def is_ambiguous(headers: Headers, version: str) -> bool:
    """Whether two parsers of a request could disagree about where it ends."""
    return "transfer-encoding" in headers and ("content-length" in headers or version == "1.0")
