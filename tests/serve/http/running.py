"""Runs the server with uvicorn, in a thread, on a free port."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import openai
import uvicorn

from graph.config import parse_settings
from graph.types import OpenEncoder
from serve.app import build_app, make_services, server_of
from serve.engines.open_backend import VllmOptions, open_backend
from serve.http.settings import ServerSettings
from serve.server.services import Services
from tests.fakes import HashEncoder

ENCODER = HashEncoder()
MCP_HEADERS = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
"""The headers that a client sends to /mcp."""


class ShortPauses:
    """asyncio with pauses of at most 10 ms, for uvicorn, which otherwise pauses for 100 ms between checks of whether to stop, and again when it stops."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.01))


uvicorn.server.asyncio = ShortPauses()  # type: ignore[assignment]


@dataclass(frozen=True)
class Running:
    """A running server, and the requests that tests send to it."""

    url: str
    port: int
    services: Services
    server: uvicorn.Server

    def client(self, key: str = "none") -> openai.OpenAI:
        http_client = openai.DefaultHttpx2Client(verify=False)
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, http_client=http_client)

    def get(self, path: str, **options: object) -> httpx2.Response:
        return self._request("GET", path, **options)

    def post(self, path: str, **options: object) -> httpx2.Response:
        return self._request("POST", path, **options)

    def delete(self, path: str, **options: object) -> httpx2.Response:
        return self._request("DELETE", path, **options)

    def _request(self, method: str, path: str, **options: object) -> httpx2.Response:
        """Send a request on a new connection. The server uses plain HTTP; `verify=False` avoids loading certificates, which takes longer than most answers."""
        return httpx2.request(method, self.url + path, timeout=30, verify=False, **options)  # type: ignore[arg-type]

    def metric(self, line: str) -> float:
        """The value of a line of /metrics; 0 if there is no such line."""
        for each in self.get("/metrics").text.splitlines():
            name, _, value = each.rpartition(" ")
            if name == line:
                return float(value)
        return 0.0


def events_of(response: httpx2.Response) -> list[dict[str, Any]]:
    """The events of a stream, without its end marker."""
    return [json.loads(line[6:]) for line in response.text.split("\n") if line.startswith("data: {")]


def bound_socket() -> socket.socket:
    """A TCP socket bound to a free port of this machine, not yet listening."""
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", 0))
    return bound


@contextmanager
def serving(
    index: Path | Sequence[Path],
    spec: str | None,
    adapters: tuple[str, ...] = (),
    vllm: VllmOptions = VllmOptions(),  # noqa: B008
    open_encoder: OpenEncoder = lambda spec: ENCODER,
    **values: object,
) -> Iterator[Running]:
    """Run the server of `modegraph serve INDEX --model SPEC`, with `values` as further settings, until the `with` block ends."""
    settings = parse_settings(ServerSettings, values, "test")
    services = make_services(
        [index] if isinstance(index, Path) else index, open_backend(spec, adapters, vllm), settings, open_encoder
    )
    server = server_of(build_app(services), services)
    socket_here = bound_socket()
    port = socket_here.getsockname()[1]
    thread = threading.Thread(target=server.run, kwargs={"sockets": [socket_here]}, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server's thread ended before the server had started; its error is printed above"
        time.sleep(0.01)
    try:
        yield Running(f"http://127.0.0.1:{port}", port, services, server)
    finally:
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive(), "the server should stop within 60 s"
