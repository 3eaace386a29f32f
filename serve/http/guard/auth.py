"""Who may ask: with a key, whoever brings it; without one, programs on this machine, and no web page of another site.

The first middleware after the log but for framing and page files, so that nothing of a request that is turned away is read.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from urllib.parse import urlsplit

from pydantic import SecretStr
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from serve.http.shared.errors import ApiError, error_response
from serve.http.shared.settings import is_loopback

OPEN_PATHS = ("/health", "/ready")
READING = ("GET", "HEAD")


class AuthMiddleware:
    """ASGI middleware. With `key`: 401 to all but OPEN_PATHS without "Authorization: Bearer KEY". Without: loopback names only.

    Without a key, a Host that is no name of this machine (DNS rebinding) and what a page of another origin sends are refused.
    """

    def __init__(self, app: ASGIApp, key: SecretStr | None) -> None:
        self.app = app
        self._expected = f"Bearer {key.get_secret_value()}".encode() if key is not None else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        problem = self._problem(scope) if scope["type"] == "http" else None
        if problem is not None:
            await error_response(problem)(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _problem(self, scope: Scope) -> ApiError | None:
        headers = Headers(scope=scope)
        if self._expected is not None:
            given = headers.get("authorization", "").encode("utf-8", "surrogateescape")
            if scope["path"] in OPEN_PATHS or hmac.compare_digest(given, self._expected):
                return None
            message = "this server wants its key: send the header Authorization: Bearer KEY"
            return ApiError(401, "wrong_key", message, headers={"WWW-Authenticate": "Bearer"})
        host = headers.get("host", "")
        if not is_loopback(_name(f"//{host}")):
            return ApiError(403, "foreign_host", "without a key this server is asked as localhost only")
        if is_foreign(headers, f"{scope['scheme']}://{host}", scope["method"]):
            message = "without a key this server is not for pages of other sites, nor of other ports of this machine"
            return ApiError(403, "foreign_origin", message)
        return None


def is_foreign(headers: Mapping[str, str], origin: str, method: str) -> bool:
    """Whether a browser sends this for a page of another origin (scheme, name and port) than `origin`, or does not say for which.

    Browsers tell the Origin of whatever changes something, and those of our days the relation of every request to its page; a link
    on a foreign page may lead to ours. A program that is no browser tells neither.
    """
    told, site = headers.get("origin"), headers.get("sec-fetch-site")
    if told is not None:
        return told.lower() != origin.lower()
    if site is not None:
        followed = method in READING and headers.get("sec-fetch-mode") == "navigate"
        return site not in ("same-origin", "none") and not followed
    return method not in READING and headers.get("user-agent", "").startswith("Mozilla/")


def _name(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
