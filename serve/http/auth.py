"""Authentication. A server with keys answers only requests with a valid key; a server without keys answers only requests from this machine, and
refuses those from pages of other sites. /openapi.json says which routes require the key.

Only the overflow check, the access log, the framing check and the files of the page come before this middleware, so that the body of a
refused request is never read.
"""

from __future__ import annotations

import hmac
import math
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from fastapi import FastAPI
from pydantic import SecretStr
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from serve.http.admission import LIMITED, MCP, UPLOADS
from serve.http.errors import ApiError, error_response, lacks_scope
from serve.http.keys import ACCESS_FIELD, FULL_ACCESS, NO_ACCESS, Access, KeyRing
from serve.http.keys import Scope as AccessScope
from serve.http.settings import is_loopback

OPEN_PATHS = ("/health", "/ready")
READ_METHODS = ("GET", "HEAD")
METRICS = "/metrics"
KEY_REQUIRED = "this server requires a key: send the header Authorization: Bearer KEY, or X-Api-Key: KEY"


class AuthMiddleware:
    """ASGI middleware: attaches the caller's rights (keys.py) to the request, or refuses it.

    With `key` or `ring`: 401 without a valid key except for OPEN_PATHS, 403 for a request that the key does not allow, 429 above its rate.
    Without either: refuses a Host that does not name this machine (DNS rebinding), and requests from pages of another origin.
    """

    def __init__(self, app: ASGIApp, key: SecretStr | None, ring: KeyRing | None = None) -> None:
        self.app = app
        self._key = key.get_secret_value().encode() if key is not None else None
        self._ring = ring

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            scope[ACCESS_FIELD] = self._access(scope)
        except ApiError as problem:
            await error_response(problem)(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _access(self, scope: Scope) -> Access:
        headers = Headers(scope=scope)
        if self._key is None and self._ring is None:
            _check_local(headers, scope)
            return FULL_ACCESS
        sent_key = key_of_headers(headers)
        if self._key is not None and hmac.compare_digest(sent_key.encode(), self._key):
            return FULL_ACCESS
        if self._ring is not None and (key := self._ring.find(sent_key)) is not None:
            scope[ACCESS_FIELD] = access = key.access()
            if scope["path"] not in OPEN_PATHS:
                _check_scope(access, scope["method"], scope["path"])
                if (wait_s := self._ring.wait_s(key)) > 0:
                    message = "this key has reached its limit of requests per minute; try again later"
                    raise ApiError(429, "too_often", message, headers={"Retry-After": str(math.ceil(wait_s))})
            return access
        if scope["path"] in OPEN_PATHS:
            return NO_ACCESS
        raise ApiError(401, "wrong_key", KEY_REQUIRED, headers={"WWW-Authenticate": "Bearer"})


def required_scope(method: str, path: str) -> AccessScope | None:
    """The scope that a key needs for this request; None for the page and the API description, which every key may read.

    >>> required_scope("GET", "/v1/documents/a"), required_scope("DELETE", "/v1/documents/a"), required_scope("GET", "/docs")
    ('read', 'write', None)
    """
    if path == METRICS:
        return "metrics"
    if path.startswith(UPLOADS) and method not in READ_METHODS:
        return "write"
    return "read" if path.startswith(LIMITED) or path == MCP else None


def _check_scope(access: Access, method: str, path: str) -> None:
    required = required_scope(method, path)
    if required is not None and required not in access.scopes:
        raise lacks_scope(required)


def _check_local(headers: Headers, scope: Scope) -> None:
    host = headers.get("host", "")
    if not is_loopback(_host_name(f"//{host}")):
        message = f"Host {host[:80]!r}: without a key this server answers only at a local address, such as localhost"
        raise ApiError(403, "foreign_host", message)
    if is_foreign(headers, f"{scope['scheme']}://{host}", scope["method"]):
        message = (
            "without a key this server refuses requests from pages of other sites or of other ports of this machine"
        )
        raise ApiError(403, "foreign_origin", message)


def key_of_headers(headers: Mapping[str, str]) -> str:
    """The key of a request, sent as OpenAI's clients do or, without the header Authorization, as Anthropic's do; "" for none.

    >>> key_of_headers({"authorization": "Bearer k"}), key_of_headers({"x-api-key": "k"}), key_of_headers({"authorization": "k"})
    ('k', 'k', '')
    """
    authorization = headers.get("authorization")
    if authorization is None:
        return headers.get("x-api-key", "")
    scheme, _, key = authorization.partition(" ")
    return key if scheme.lower() == "bearer" else ""


def is_foreign(headers: Mapping[str, str], origin: str, method: str) -> bool:
    """Whether a browser sends this request on behalf of a page whose origin (scheme, name and port) is not `origin`, or is unknown.

    Browsers send Origin with every request that may change something, and modern browsers send Sec-Fetch-Site with every request. A link on a
    foreign page is allowed to lead to this server's page. Other programs send neither header; a request that may change something counts as
    foreign if it has neither and its User-Agent is that of a browser.
    """
    sent_origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if sent_origin is not None:
        return sent_origin.lower() != origin.lower()
    if site is not None:
        is_navigation = method in READ_METHODS and headers.get("sec-fetch-mode") == "navigate"
        return site not in ("same-origin", "none") and not is_navigation
    return method not in READ_METHODS and headers.get("user-agent", "").startswith("Mozilla/")


def _host_name(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


STREAMABLE_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "the answer; with `stream`, its parts as server-sent events",
        "content": {
            "application/json": {"schema": {"type": "object"}},
            "text/event-stream": {"schema": {"type": "string"}},
        },
    }
}
"""The `responses` of a route that can stream."""
KEY_DESCRIPTION = "the server's key, if it has one"
SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": KEY_DESCRIPTION},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "X-Api-Key", "description": KEY_DESCRIPTION},
}
"""The two ways to send the key; either is enough."""


def describe_key(app: FastAPI, required: bool) -> None:
    """Declare the key as the security scheme of all routes except the open ones; optional unless `required`."""
    base_openapi = app.openapi

    def openapi() -> dict[str, Any]:
        description = base_openapi()
        description.setdefault("components", {})["securitySchemes"] = SCHEMES
        description["security"] = [*([] if required else [{}]), *({name: []} for name in SCHEMES)]
        for path in OPEN_PATHS:
            for operation in description["paths"][path].values():
                operation["security"] = []
        return description

    app.openapi = openapi  # type: ignore[method-assign]
