"""What /openapi.json says beyond the routes' own words: the key that they want, and that an answer may be a stream."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from serve.http.auth import OPEN_PATHS

STREAMED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "the answer; with `stream` its pieces as events, the last of them [DONE]",
        "content": {
            "application/json": {"schema": {"type": "object"}},
            "text/event-stream": {"schema": {"type": "string"}},
        },
    }
}
"""The answer of a route that can stream, for its `responses`."""
KEY = "the server's key, where it has one"
SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": KEY},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "X-Api-Key", "description": KEY},
}
"""Either of them will do."""


def describe_key(app: FastAPI, wanted: bool) -> None:
    """Name the key as the scheme of all routes but the open ones; as one that may be left out where none is `wanted`."""
    routes_alone = app.openapi

    def openapi() -> dict[str, Any]:
        made = routes_alone()
        made.setdefault("components", {})["securitySchemes"] = SCHEMES
        made["security"] = [*([] if wanted else [{}]), *({name: []} for name in SCHEMES)]
        for path in OPEN_PATHS:
            for operation in made["paths"][path].values():
                operation["security"] = []
        return made

    app.openapi = openapi  # type: ignore[method-assign]
