"""reference/http.md: the server's routes, from its OpenAPI description."""

from typing import Any

from fastapi import FastAPI

from serve.app import build_app, open_tracing
from serve.http.logs import AuditLog
from serve.http.settings import ServerSettings
from serve.http.telemetry import Metrics
from serve.server.services import Services
from tools.reference.markdown import code, page, table

ABOUT = (
    "Routes of `modegraph serve`; [Serving](../serving.md) says how to use them. A running server describes each field at `/docs` and `/openapi.json`. "
    "With a key, every route but `/health` and `/ready` requires `Authorization: Bearer KEY` or `X-Api-Key: KEY`."
)


def pages() -> dict[str, str]:
    """The page, by file name."""
    parts = [section(tag, rows) for tag, rows in by_tag(openapi_description()).items()]
    return {"reference/http.md": page("HTTP", ABOUT, *parts)}


def openapi_description() -> dict[str, Any]:
    """The OpenAPI description of a server that has no index and is never called."""
    nothing: Any = None
    services = Services(
        ServerSettings(), nothing, nothing, nothing, Metrics(), open_tracing(None), AuditLog(None), None
    )
    app: Any = build_app(services)
    while not isinstance(app, FastAPI):
        app = app.app
    return app.openapi()


def by_tag(description: dict[str, Any]) -> dict[str, list[tuple[str, str, dict[str, Any]]]]:
    """(method, path, operation) of each tag, in the order of the routers."""
    routes: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            routes.setdefault(operation.get("tags", ["other"])[0], []).append((method.upper(), path, operation))
    return routes


def section(tag: str, rows: list[tuple[str, str, dict[str, Any]]]) -> str:
    """The section on the routes of one tag."""
    cells = [
        [code(f"{method} {path}"), operation.get("description", ""), fields(operation)]
        for method, path, operation in rows
    ]
    return "\n\n".join([f"## {tag.capitalize()}", table(["route", "what it does", "parameters or body"], cells)])


def fields(operation: dict[str, Any]) -> str:
    """The parameters, and the type of the request body: its schema's name, or its media type if it has none."""
    parameters = [code(parameter["name"]) for parameter in operation.get("parameters", [])]
    content = operation.get("requestBody", {}).get("content", {})
    bodies = [body.get("schema", {}).get("$ref", "").rpartition("/")[2] or kind for kind, body in content.items()]
    return ", ".join([*parameters, *map(code, bodies)])
