"""The protocol over standard input and output: one client, which started this process and may do everything."""

from __future__ import annotations

from threading import Thread

import anyio
from mcp.server.stdio import stdio_server

from graph.shared.console import say
from graph.shared.errors import UserError
from serve.http.mcp.server import build_mcp
from serve.http.routes.services import Services
from serve.live_index import warm_up


def serve_stdio(services: Services) -> None:
    """Answer until the client closes standard input; what a search needs is loaded while it reads what tools there are."""
    Thread(target=_warm_up, args=(services,), name="warm-up", daemon=True).start()
    anyio.run(_serve, services)


async def _serve(services: Services) -> None:
    server = build_mcp(services)
    async with services.running(), stdio_server() as (read_stream, write_stream):
        await server.run(read_stream, write_stream, server.create_initialization_options())


def _warm_up(services: Services) -> None:
    for live in services.collections.live.values():
        try:
            warm_up(live.current.index, services.settings.mode)
        except UserError as problem:
            say(f"modegraph: {live.name} cannot be searched yet: {problem}")
