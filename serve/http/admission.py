"""What is let in: so many requests at work, so many waiting, the rest answered 429 before their body is read.

An admitted request has its body read here, within limits of size and time, then waits for its turn; it is cancelled, wherever it is, when its
client goes away or its time is up, and with it its call of the model. A full server refuses at the least cost: from the first bytes of a
connection where they hold the request line, else in the outermost middleware. A request whose length is given in two ways is refused, since a
proxy before this server could read it as another one than we do."""

from __future__ import annotations

import asyncio
from asyncio import Future

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.http.encoding import DONE, event, named_event
from serve.http.errors import ApiError, error_response
from serve.http.settings import ServerSettings
from serve.http.telemetry import Metrics

LIMITED, UNLIMITED, UPLOADS = "/v1/", "/v1/models", "/v1/documents"
MCP = "/mcp"
STREAM = "text/event-stream"
LAST_EVENT_TIMEOUT_S = 1.0
"""How long the reader of a stream that is cut may take for the event that says so."""


class AdmissionMiddleware:
    """ASGI middleware over everything below /v1/ but the list of models, and over /mcp."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, metrics: Metrics) -> None:
        self.app = app
        self._settings, self._errors = settings, metrics.errors
        self._requests = _Slots(settings.capacity + settings.queue, settings.capacity)
        self._writes = _Slots(settings.write_queue, settings.write_queue) if settings.writable else self._requests
        both = {self._requests, self._writes}
        metrics.waiting.set_function(lambda: sum(each.inside - each.at_work for each in both))
        metrics.running.set_function(lambda: sum(each.at_work for each in both))

    def full(self, method: str, path: str) -> bool:
        """Whether there is no room for another such request, at work or waiting."""
        return is_limited_path(path) and self._places(method, path).full

    @property
    def has_room(self) -> bool:
        """Whether there is room for a request of any kind."""
        return not self._requests.full and not self._writes.full

    def _places(self, method: str, path: str) -> _Slots:
        """Those who change the index wait for each other, not for answers, and keep nobody from asking."""
        return self._writes if path.startswith(UPLOADS) and method not in ("GET", "HEAD") else self._requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not is_limited(scope):
            await self.app(scope, receive, send)
            return
        places = self._places(scope["method"], scope["path"])
        places.inside += 1
        try:
            body = await self._read_body(scope, receive)
            if body is not None:
                await self._work(scope, body, receive, send, places)
        except ApiError as problem:
            await error_response(problem)(scope, receive, send)
        finally:
            places.inside -= 1

    async def _read_body(self, scope: Scope, receive: Receive) -> bytes | None:
        """The whole body; None when the client went away. ApiError 413 when too long, 408 when too slow."""
        upload = scope["path"].startswith(UPLOADS)
        limit = self._settings.max_upload_bytes if upload else self._settings.max_body_bytes
        try:
            async with asyncio.timeout(self._settings.body_timeout_s):
                return await read_body(scope, receive, limit)
        except TimeoutError:
            told = f"the body did not come within {self._settings.body_timeout_s:g} s"
            raise ApiError(408, "slow_body", told, headers={"Connection": "close"}) from None

    async def _work(self, scope: Scope, body: bytes, receive: Receive, send: Send, places: _Slots) -> None:
        """Run the request when its turn comes, until it is done, its client is gone, its time is up or the server stops."""
        answer = _TrackedResponse(send)
        gone: Future[Message] = asyncio.ensure_future(receive())
        work: Future[None] = asyncio.ensure_future(self._in_turn(scope, body, gone, answer, places))
        limit = None if scope["path"].startswith(UPLOADS) else self._settings.request_timeout_s
        cut: ApiError | None = None
        try:
            await asyncio.wait([work, gone], timeout=limit, return_when=asyncio.FIRST_COMPLETED)  # type: ignore[type-var]
            if not work.done() and not gone.done():
                cut = ApiError(504, "too_long", f"no answer within {self._settings.request_timeout_s:g} s")
        except asyncio.CancelledError:
            # uvicorn cancels what still runs when a stopping server's patience ends.
            cut = ApiError(503, "stopping", "the server stops before the answer is done", headers={"Retry-After": "5"})
        try:
            if not work.done() and not answer.complete:
                work.cancel()
                # Before anything is waited for: a server that stops does not wait for this.
                if cut is not None and await answer.end(cut):
                    self._errors.labels(cut.code).inc()
                await asyncio.wait({work})
            if cut is not None and not answer.started:
                raise cut
            if not work.cancelled():
                await work
        finally:
            gone.cancel()
            work.cancel()

    async def _in_turn(
        self, scope: Scope, body: bytes, gone: Future[Message], answer: _TrackedResponse, places: _Slots
    ) -> None:
        async def replay() -> Message:
            if not replayed:
                replayed.append(True)
                return {"type": "http.request", "body": body, "more_body": False}
            return await asyncio.shield(gone)

        replayed: list[bool] = []
        async with places.turns:
            places.at_work += 1
            try:
                await self.app(scope, replay, answer.send)
            finally:
                places.at_work -= 1


class _Slots:
    """Room for `limit` requests, of which `at_once` are worked on."""

    def __init__(self, limit: int, at_once: int) -> None:
        self.turns = asyncio.Semaphore(at_once)
        self.inside = self.at_work = 0
        self._limit = limit

    @property
    def full(self) -> bool:
        return self.inside >= self._limit


class _TrackedResponse:
    """What has been sent of an answer."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = self.complete = False
        self._streams = False
        self._last = b""

    async def send(self, message: Message) -> None:
        self.started = True
        if message["type"] == "http.response.start":
            self._streams = Headers(raw=message.get("headers", [])).get("content-type", "").startswith(STREAM)
        elif message["type"] == "http.response.body":
            self.complete = self.complete or not message.get("more_body", False)
            self._last = message.get("body", b"") or self._last
        await self._send(message)

    async def end(self, problem: ApiError) -> bool:
        """Tell the reader of a stream why it ends here; whether there is one that takes it."""
        if not self._streams or self.complete:
            return False
        gap = b"" if self._last.endswith(b"\n\n") else b"\n\n"
        told = named_event({"type": "error", **problem.body()}) if self._last.startswith(b"event: ") else None
        try:
            async with asyncio.timeout(LAST_EVENT_TIMEOUT_S):
                await self.send({"type": "http.response.body", "body": gap + (told or event(problem.body())) + DONE})
        except TimeoutError:
            return False
        return True


def is_limited(scope: Scope) -> bool:
    """Whether a request is one of those that are counted."""
    return scope["type"] == "http" and is_limited_path(scope["path"])


def is_limited_path(path: str) -> bool:
    """Whether requests for a path are counted."""
    return path == MCP or (path.startswith(LIMITED) and not path.startswith(UNLIMITED))


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes | None:
    """A body of at most `limit` bytes; None when the client went away. ApiError 413 as soon as it is known to be longer."""
    told = Headers(scope=scope).get("content-length", "0")
    too_long = ApiError(
        413, "too_long_body", f"the body is longer than {limit:,} bytes", headers={"Connection": "close"}
    )
    if told.isdecimal() and int(told[:20]) > limit:
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


class FramingMiddleware:
    """ASGI middleware: 400, and the end of the connection, for Content-Length beside Transfer-Encoding, and for the latter in HTTP/1.0."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and is_ambiguous(Headers(scope=scope), scope["http_version"]):
            told = "the length of the body is told in two ways: send Content-Length or Transfer-Encoding, not both"
            problem = ApiError(400, "two_lengths", told, headers={"Connection": "close"})
            await error_response(problem)(scope, receive, send)
        else:
            await self.app(scope, receive, send)


def is_ambiguous(headers: Headers, version: str) -> bool:
    """Whether two readers of a request could disagree about where it ends."""
    return "transfer-encoding" in headers and ("content-length" in headers or version == "1.0")
