"""Who may ask: with a key, whoever brings it; without one, programs on this machine, and no web page of another site.

The first layer after the log, so that nothing of a request that is turned away is read.
"""

from __future__ import annotations

import hmac
from urllib.parse import urlsplit

from pydantic import SecretStr
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from serve.http.errors import ApiError, error_response
from serve.http.settings import is_loopback

OPEN_PATHS = ("/health", "/ready")


class Guard:
    """ASGI layer. With `key`: 401 to all but OPEN_PATHS without "Authorization: Bearer KEY". Without: loopback names only.

    Without a key, a Host that is no name of this machine (DNS rebinding) and an Origin of another host (a foreign page that
    posts a form) are refused.
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
        host, origin = headers.get("host", ""), headers.get("origin")
        if not is_loopback(_name(f"//{host}")):
            return ApiError(403, "foreign_host", "without a key this server is asked as localhost only")
        if origin is not None and not is_loopback(_name(origin)):
            return ApiError(403, "foreign_origin", "without a key this server is not for pages of other sites")
        return None


def _name(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
