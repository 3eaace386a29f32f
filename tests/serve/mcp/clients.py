"""The client of the MCP package, connected to a listening server in either version of the protocol."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.serve.http.running import Running

T = TypeVar("T")
VERSIONS = {"legacy": "2025-11-25", "2026-07-28": "2026-07-28"}
"""The modes of the client, and the protocol version that both sides agree on in each."""


def with_client(
    running: Running | str, mode: str, work: Callable[[Client], Awaitable[T]], headers: dict[str, str] | None = None
) -> T:
    """Connect a client to /mcp of `running`, a server or its URL, and return the result of `work`."""
    url = running if isinstance(running, str) else running.url

    async def session() -> T:
        async with httpx2.AsyncClient(headers=headers or {}, timeout=60, verify=False) as http:
            transport = streamable_http_client(f"{url}/mcp", http_client=http)
            async with Client(transport, mode=mode) as client:
                return await work(client)

    return anyio.run(session)


async def call_tool(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The result of a tool call that must succeed."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error and result.structured_content is not None, result.content
    return result.structured_content


async def refusal_of(client: Client, tool: str, **arguments: Any) -> str:
    """The message of a tool call that must fail."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result.structured_content
    text: str = result.content[0].text  # type: ignore[union-attr]
    return text
