"""/mcp: streamable HTTP, a JSON reply to each request, no session: any server of several may answer the next one."""

from __future__ import annotations

from fastapi import FastAPI
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import Receive, Scope, Send

from serve.http.guard.admission import MCP
from serve.http.mcp.server import build_mcp
from serve.http.routes.services import Services


class McpRoute:
    """ASGI application. `manager.run()` must be entered while it serves."""

    path = MCP

    def __init__(self, services: Services) -> None:
        limit = services.settings.max_body_bytes
        self.manager = StreamableHTTPSessionManager(
            build_mcp(services), json_response=True, stateless=True, max_request_body_size=limit
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = self  # Whose `path` the access log and the metrics tell.
        await self.manager.handle_request(scope, receive, send)


def add_mcp(app: FastAPI, services: Services) -> McpRoute:
    """The route on `app`; GET and DELETE, which are for sessions, are answered 405."""
    route = McpRoute(services)
    app.add_route(route.path, route, methods=["POST"], include_in_schema=False)  # type: ignore[arg-type]
    return route
