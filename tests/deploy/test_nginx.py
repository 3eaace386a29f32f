"""The shipped nginx.conf in front of replicas that a test can make fail: which requests nginx sends again, and how it forwards streams."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.deploy.cluster import free_ports, nginx_program, running_nginx


class Replicas:
    """Servers that answer every request. If `breaks` is set, however, they read the first request and close its connection without an answer."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []
        self.first_piece_read = threading.Event()
        self.breaks = True
        self._lock = threading.Lock()

    def handler(self) -> type[BaseHTTPRequestHandler]:
        replicas = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                with replicas._lock:
                    replicas.requests.append((self.command, self.path))
                    broken = replicas.breaks and len(replicas.requests) == 1
                self.close_connection = True
                if broken:
                    return
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("X-Connection", self.headers["Connection"])
                self.end_headers()
                self.wfile.write(b"data: first\n\n")
                self.wfile.flush()
                if self.path == "/stream":
                    replicas.first_piece_read.wait(30)
                self.wfile.write(b"data: last\n\n")

            do_GET = do_HEAD = do_POST = do_DELETE = answer

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        return Handler


@contextmanager
def nginx_in_front_of(replicas: Replicas, folder: Path, dead: int = 0) -> Iterator[str]:
    """nginx in front of two servers, of which the first `dead` are down."""
    with ExitStack() as exits:
        ports = free_ports(dead)
        for _ in range(2 - dead):
            server = ThreadingHTTPServer(("127.0.0.1", 0), replicas.handler())
            exits.callback(server.server_close)
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
            exits.callback(server.shutdown)
            ports.append(server.server_address[1])
        (port,) = free_ports(1)
        exits.enter_context(running_nginx(nginx_program(), port, ports, folder))
        yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("method", "path", "times"),
    [
        ("GET", "/v1/documents/lantern", 2),
        ("DELETE", "/v1/documents/lantern", 2),
        ("POST", "/v1/retrieve", 2),
        ("POST", "/v1/rerank", 2),
        ("POST", "/v1/embeddings", 2),
        ("POST", "/v1/vector_stores/index/search", 2),
        ("POST", "/v1/chat/completions", 1),
        ("POST", "/v1/responses", 1),
        ("POST", "/v1/messages", 1),
        ("POST", "/v1/documents", 1),
        ("POST", "/v1/documents/files", 1),
        ("POST", "/v1/feedback", 1),
        ("POST", "/mcp", 1),
    ],
)
def test_a_request_whose_connection_broke_is_sent_again_only_if_that_is_safe(
    tmp_path: Path, method: str, path: str, times: int
) -> None:
    replicas = Replicas()
    with nginx_in_front_of(replicas, tmp_path) as url:
        response = httpx2.request(
            method, url + path, content=b"{}" if method == "POST" else None, timeout=30, verify=False
        )
    assert (response.status_code, replicas.requests) == (200 if times == 2 else 502, [(method, path)] * times)


def test_a_connection_that_breaks_while_the_other_replica_is_down_loses_one_request(tmp_path: Path) -> None:
    replicas = Replicas()
    with nginx_in_front_of(replicas, tmp_path, dead=1) as url:
        statuses = [httpx2.post(f"{url}/v1/messages", timeout=30, verify=False).status_code for _ in range(4)]
    assert statuses == [502, 200, 200, 200]


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_no_request_is_lost_while_a_replica_is_down(tmp_path: Path, method: str) -> None:
    replicas = Replicas()
    replicas.breaks = False
    with nginx_in_front_of(replicas, tmp_path, dead=1) as url:
        statuses = [
            httpx2.request(method, f"{url}/v1/chat/completions", timeout=30, verify=False).status_code for _ in range(6)
        ]
    assert statuses == [200] * 6 and len(replicas.requests) == 6


def test_a_stream_is_forwarded_as_it_arrives_and_gets_a_connection_of_its_own(tmp_path: Path) -> None:
    replicas = Replicas()
    replicas.breaks = False
    with (
        nginx_in_front_of(replicas, tmp_path) as url,
        httpx2.stream("POST", f"{url}/stream", timeout=20, verify=False) as response,
    ):
        pieces = response.iter_text()
        assert next(pieces) == "data: first\n\n", "the first piece should arrive before the server writes the rest"
        replicas.first_piece_read.set()
        assert "".join(pieces) == "data: last\n\n" and response.headers["x-connection"] == "close"


def test_bodies_larger_than_the_largest_upload_are_refused(tmp_path: Path) -> None:
    replicas = Replicas()
    replicas.breaks = False
    with nginx_in_front_of(replicas, tmp_path) as url:
        statuses = [
            httpx2.post(f"{url}/v1/documents/files", content=b"x" * (mib << 20), timeout=60, verify=False).status_code
            for mib in (32, 34)
        ]
    assert statuses == [200, 413] and len(replicas.requests) == 1
