"""Who may ask: with a key, whoever brings it; without one, programs on this machine, and no web page of another site.

The first middleware after the log but for framing and page files, so that nothing of a request that is turned away is read.
"""

from __future__ import annotations

import hmac
import math
from collections.abc import Mapping
from urllib.parse import urlsplit

from pydantic import SecretStr
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from serve.http.admission import LIMITED, MCP, UPLOADS
from serve.http.errors import ApiError, error_response
from serve.http.keys import ACCESS_FIELD, FULL_ACCESS, NO_ACCESS, Access, KeyRing
from serve.http.keys import Scope as AccessScope
from serve.http.settings import is_loopback

OPEN_PATHS = ("/health", "/ready")
READ_METHODS = ("GET", "HEAD")
METRICS = "/metrics"
KEY_REQUIRED = "this server wants its key: send the header Authorization: Bearer KEY, or X-Api-Key: KEY"


class AuthMiddleware:
    """ASGI middleware: the rights of whoever asks go with the request (access.py), or it ends here.

    With `key` or `ring`: 401 to all but OPEN_PATHS without a key of theirs, 403 for what it does not open, 429 for more than its
    rate. Without: a Host that is no name of this machine (DNS rebinding) and what a page of another origin sends are refused.
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
        given = key_of_headers(headers)
        if self._key is not None and hmac.compare_digest(given.encode(), self._key):
            return FULL_ACCESS
        key = self._ring.find(given) if self._ring is not None else None
        if key is not None and self._ring is not None:
            scope[ACCESS_FIELD] = access = key.access()
            if scope["path"] not in OPEN_PATHS:
                _check_scope(access, scope["method"], scope["path"])
                _check_rate(self._ring.wait_s(key))
            return access
        if scope["path"] in OPEN_PATHS:
            return NO_ACCESS if self._ring is not None else FULL_ACCESS
        raise ApiError(401, "wrong_key", KEY_REQUIRED, headers={"WWW-Authenticate": "Bearer"})


def required_scope(method: str, path: str) -> AccessScope | None:
    """What a key must be good for to ask this; None for the page and the descriptions, which any key opens.

    >>> required_scope("GET", "/v1/documents/a"), required_scope("DELETE", "/v1/documents/a"), required_scope("GET", "/docs")
    ('read', 'write', None)
    """
    if path == METRICS:
        return "metrics"
    if path.startswith(UPLOADS) and method not in READ_METHODS:
        return "write"
    return "read" if path.startswith(LIMITED) or path == MCP else None


def _check_scope(access: Access, method: str, path: str) -> None:
    wanted = required_scope(method, path)
    if wanted is not None and wanted not in access.scopes:
        raise ApiError(403, "not_allowed", f"this key is not good for that: it lacks the scope {wanted}")


def _check_rate(wait_s: float) -> None:
    if wait_s > 0:
        told = "this key has asked as often as it may in a minute; try again later"
        raise ApiError(429, "too_often", told, headers={"Retry-After": str(math.ceil(wait_s))})


def _check_local(headers: Headers, scope: Scope) -> None:
    host = headers.get("host", "")
    if not is_loopback(_host_name(f"//{host}")):
        raise ApiError(403, "foreign_host", "without a key this server is asked as localhost only")
    if is_foreign(headers, f"{scope['scheme']}://{host}", scope["method"]):
        message = "without a key this server is not for pages of other sites, nor of other ports of this machine"
        raise ApiError(403, "foreign_origin", message)


def key_of_headers(headers: Mapping[str, str]) -> str:
    """The key that a request brings as OpenAI's clients do or, without the header Authorization, as Anthropic's; "" for none.

    >>> key_of_headers({"authorization": "Bearer k"}), key_of_headers({"x-api-key": "k"}), key_of_headers({"authorization": "k"})
    ('k', 'k', '')
    """
    told = headers.get("authorization")
    if told is None:
        return headers.get("x-api-key", "")
    kind, _, key = told.partition(" ")
    return key if kind.lower() == "bearer" else ""


def is_foreign(headers: Mapping[str, str], origin: str, method: str) -> bool:
    """Whether a browser sends this for a page of another origin (scheme, name and port) than `origin`, or does not say for which.

    Browsers tell the Origin of whatever changes something, and those of our days the relation of every request to its page; a link
    on a foreign page may lead to ours. A program that is no browser tells neither.
    """
    told, site = headers.get("origin"), headers.get("sec-fetch-site")
    if told is not None:
        return told.lower() != origin.lower()
    if site is not None:
        followed = method in READ_METHODS and headers.get("sec-fetch-mode") == "navigate"
        return site not in ("same-origin", "none") and not followed
    return method not in READ_METHODS and headers.get("user-agent", "").startswith("Mozilla/")


def _host_name(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
