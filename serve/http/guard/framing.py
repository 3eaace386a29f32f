"""A request whose length is told in two ways is refused: a proxy before this server could read it as another one than we do."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from serve.http.shared.errors import ApiError, error_response


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
