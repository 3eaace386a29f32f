"""Idle connections: the server closes them after a time limit, and until then they do not block other clients."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import httpx2
import pytest

from tests.places import ROOT
from tests.serve.conftest import Stack
from tests.serve.http.running import Running

SILENT_CONNECTIONS = 60
SHORT_TIMEOUT = {"idle_timeout_s": 0.4}


@contextmanager
def open_connections(running: Running, number: int, data: bytes = b"") -> Iterator[list[socket.socket]]:
    with ExitStack() as exits:
        connections = []
        for _ in range(number):
            connections.append(exits.enter_context(socket.create_connection(("127.0.0.1", running.port), timeout=10)))
            connections[-1].sendall(data)
        yield connections


def is_closed(connection: socket.socket) -> bool:
    """Whether the server closes the connection within ten seconds."""
    try:
        while connection.recv(65536):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize("data", [b"", b"GET /health HTT", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: "])
def test_silent_connections_do_not_block_other_clients(stack: Stack, data: bytes) -> None:
    running, _ = stack(max_connections=SILENT_CONNECTIONS)
    with open_connections(running, SILENT_CONNECTIONS, data):
        time.sleep(0.1)
        for _ in range(3):
            assert running.get("/v1/models").status_code == 200
            assert running.post("/v1/retrieve", json={"query": "Lantern"}).status_code == 200


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ",
        b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\nx",
        b"POST /v1/retrieve HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\nx",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /hea",
    ],
)
def test_a_client_that_sends_nothing_more_is_disconnected(stack: Stack, data: bytes) -> None:
    """The client, which gives no key, stops before a request, within the head of the first or second request, or within a body."""
    running, _ = stack(api_key="k", **SHORT_TIMEOUT)
    with open_connections(running, 1, data) as (connection,):
        assert is_closed(connection)


@pytest.mark.parametrize(
    "data",
    [
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ",
        b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n",
    ],
)
def test_sending_single_bytes_does_not_extend_the_time_limit(stack: Stack, data: bytes) -> None:
    running, _ = stack(api_key="k", **SHORT_TIMEOUT)
    with open_connections(running, 1, data) as (connection,), pytest.raises(OSError):
        for _ in range(100):
            time.sleep(0.05)
            connection.sendall(b"x")


def test_an_answer_that_the_client_does_not_read_is_abandoned(stack: Stack) -> None:
    """A public file of the page is requested many times and never read: answers that the kernel does not buffer wait in the server."""
    running, _ = stack(api_key="k", idle_timeout_s=0.1)
    large = running.get("/").text.partition('src="')[2].partition('"')[0]
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", running.port))
        connection.sendall(f"GET /{large} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * 300)
        with pytest.raises(OSError):
            for _ in range(100):
                connection.sendall(b"GET")
                time.sleep(0.1)


def test_a_connection_stays_open_between_requests_and_during_a_slow_answer(stack: Stack) -> None:
    running, _ = stack("one two three four", seconds_per_word=0.12, idle_timeout_s=0.6)
    ask = {"model": "tiny", "messages": [{"role": "user", "content": "Who built the Lantern?"}], "stream": True}
    addresses = set()

    def record(response: httpx2.Response) -> None:
        addresses.add(response.extensions["network_stream"].get_extra_info("client_addr"))

    with httpx2.Client(base_url=running.url, event_hooks={"response": [record]}) as client:
        for _ in range(2):
            assert client.post("/v1/chat/completions", json=ask).text.endswith("data: [DONE]\n\n")
            for _ in range(3):
                time.sleep(0.05)
                client.get("/health")
    assert len(addresses) == 1


PRINT_CONNECTIONS = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 800))
from serve.app import connections_that_fit
for requested in (60, 10_000):
    print(connections_that_fit(requested), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_the_soft_limit_on_open_files_is_raised_and_the_hard_limit_limits_connections() -> None:
    command = [sys.executable, "-P", "-c", PRINT_CONNECTIONS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["60 316 800", "544 800 800"]
    assert "at most 544 connections, not 10000: the limit on open files is 800" in done.stderr
