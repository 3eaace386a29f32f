"""Additions to /openapi.json: the key that routes require, and responses that may be streams."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from serve.http.auth import OPEN_PATHS

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
