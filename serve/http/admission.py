"""How much is let in: so many requests at work, so many waiting, the rest told 429 before their body is read.

A request that is let in has its body read here, within limits of size and time, then waits for its turn; it is cancelled, wherever it
is, when its client goes away or its time is up, and with it whatever it asked of the model's server.
"""

from __future__ import annotations

import asyncio
from asyncio import Future

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.http.errors import ApiError, error_response
from serve.http.metrics import Metrics
from serve.http.settings import ServerSettings

LIMITED, FREE, UPLOADS = "/v1/", "/v1/models", "/v1/documents"


class Admission:
    """ASGI layer over everything below /v1/ but the list of models."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, metrics: Metrics) -> None:
        self.app = app
        self._settings = settings
        self._turns = asyncio.Semaphore(settings.capacity)
        self._inside = self._at_work = 0
        metrics.waiting.set_function(lambda: self._inside - self._at_work)
        metrics.running.set_function(lambda: self._at_work)

    @property
    def full(self) -> bool:
        """Whether there is no room for another request, at work or waiting."""
        return self._inside >= self._settings.capacity + self._settings.queue

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not is_limited(scope):
            await self.app(scope, receive, send)
            return
        self._inside += 1
        try:
            body = await self._read_body(scope, receive)
            if body is not None:
                await self._work(scope, body, receive, send)
        except ApiError as problem:
            await error_response(problem)(scope, receive, send)
        finally:
            self._inside -= 1

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

    async def _work(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """Run the request when its turn comes, until it is done, its client is gone or its time is up."""
        answer = _Answer(send)
        gone: Future[Message] = asyncio.ensure_future(receive())
        work: Future[None] = asyncio.ensure_future(self._in_turn(scope, body, gone, answer))
        limit = None if scope["path"].startswith(UPLOADS) else self._settings.request_timeout_s
        try:
            await asyncio.wait([work, gone], timeout=limit, return_when=asyncio.FIRST_COMPLETED)  # type: ignore[type-var]
            late = not work.done() and not gone.done()
            if not work.done() and not answer.complete:
                work.cancel()
                await asyncio.wait({work})
            if late and not answer.started:
                raise ApiError(504, "too_long", f"no answer within {self._settings.request_timeout_s:g} s")
            if not work.cancelled():
                await work
        finally:
            gone.cancel()
            work.cancel()

    async def _in_turn(self, scope: Scope, body: bytes, gone: Future[Message], answer: _Answer) -> None:
        async def replay() -> Message:
            if not replayed:
                replayed.append(True)
                return {"type": "http.request", "body": body, "more_body": False}
            return await asyncio.shield(gone)

        replayed: list[bool] = []
        async with self._turns:
            self._at_work += 1
            try:
                await self.app(scope, replay, answer.send)
            finally:
                self._at_work -= 1


class _Answer:
    """What has been sent of an answer."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = self.complete = False

    async def send(self, message: Message) -> None:
        self.started = True
        last = message["type"] == "http.response.body" and not message.get("more_body", False)
        self.complete = self.complete or last
        await self._send(message)


def is_limited(scope: Scope) -> bool:
    """Whether a request is one of those that are counted."""
    return scope["type"] == "http" and is_limited_path(scope["path"])


def is_limited_path(path: str) -> bool:
    """Whether requests for a path are counted."""
    return path.startswith(LIMITED) and not path.startswith(FREE)


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
