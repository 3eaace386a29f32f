"""Serves the pages (/ and /docs) and their scripts and styles from memory.

The URLs of scripts and styles contain a hash of all files, so that browsers may cache them forever. If the server requires a key, a request for a page
without the key gets a 401, as on the routes of the API, but the body is the page, which asks for the key. The files below /page/ are the same for everyone,
contain no data from the index, and need no key. No path in a request is ever used to read from the disk.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request
from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
SECURITY_HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
CACHE_FOREVER = "public, max-age=31536000, immutable"
PAGES = {"/": "index.html", "/docs": "docs.html"}
FOLDER = Path(__file__).parent


def page_router() -> APIRouter:
    """The routes of PAGES, which require the key like the routes of the API."""
    router = APIRouter(include_in_schema=False)

    @router.api_route("/", methods=["GET", "HEAD"])
    @router.api_route("/docs", methods=["GET", "HEAD"])
    async def page(request: Request) -> Response:
        """The page; 304 if the browser has cached this version."""
        tag = f'"{version()}"'
        headers = {**SECURITY_HEADERS, "ETag": tag, "Cache-Control": "no-cache"}
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(page_files()[PAGES[request.scope["path"]]], media_type=TYPES[".html"], headers=headers)

    return router


class PageMiddleware:
    """ASGI middleware around `AuthMiddleware`: serves the pages' files, and replaces the body of a 401 at a page's address with the page."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_read = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        path = scope["path"] if is_read else ""
        name = path.removeprefix(f"/page/{version()}/")
        if name != path and name not in PAGES.values() and name in page_files():
            headers = {**SECURITY_HEADERS, "ETag": f'"{version()}"', "Cache-Control": CACHE_FOREVER}
            response = Response(page_files()[name], media_type=TYPES[Path(name).suffix], headers=headers)
            await response(scope, receive, send)
        elif path in PAGES:
            body = page_files()[PAGES[path]]
            await self.app(scope, receive, with_page_for_401(send, body, scope["method"]))
        else:
            await self.app(scope, receive, send)


def with_page_for_401(send: Send, body: bytes, method: str) -> Send:
    """`send` with the body of a 401 replaced by a page."""
    replacement: list[Message] = []

    async def send_replaced(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == 401:
            headers = MutableHeaders(raw=list(message["headers"]))
            headers.update({**SECURITY_HEADERS, "Cache-Control": "no-store", "Content-Type": TYPES[".html"]})
            headers["Content-Length"] = str(len(body))
            replacement.append({"type": "http.response.body", "body": body if method == "GET" else b""})
            await send({**message, "headers": headers.raw})
        elif not replacement:
            await send(message)
        elif not message.get("more_body", False):
            await send(replacement[0])

    return send_replaced


@cache
def version() -> str:
    """A hash of the names and contents of the pages' files, in 16 hexadecimal digits."""
    contents = _read_files()
    return hashlib.sha256(b"".join(name.encode() + contents[name] for name in sorted(contents))).hexdigest()[:16]


@cache
def page_files() -> Mapping[str, bytes]:
    """The pages' files by name; in the pages, VERSION in URLs is replaced by the version."""
    contents, base_path = _read_files(), f"page/{version()}/".encode()
    return {**contents, **{name: contents[name].replace(b"page/VERSION/", base_path) for name in PAGES.values()}}


def _read_files() -> dict[str, bytes]:
    return {
        file.relative_to(FOLDER).as_posix(): file.read_bytes() for file in FOLDER.rglob("*") if file.suffix in TYPES
    }
