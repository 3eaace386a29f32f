"""A stopping server answers every client that has connected, and refuses the connections of all others."""

import asyncio
import json
import socket
import time
from collections import Counter
from pathlib import Path
from threading import Thread

import httpx2
import pytest
import uvicorn

from serve.http.connections import accept_pending
from tests.processes import until
from tests.serve.http.running import Running, bound_socket, serving

BODY = json.dumps({"query": "Lantern", "mode": "lexical"}).encode()
HEAD = (
    b"POST /v1/retrieve HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
    % len(BODY)
)
CLIENTS, STOPS = 20, 8


@pytest.fixture(autouse=True)
def original_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uvicorn's own pauses, during which clients of a stopping server may connect; running.py shortens them for other tests."""
    monkeypatch.setattr(uvicorn.server, "asyncio", asyncio)


def is_refused(running: Running) -> bool:
    try:
        socket.create_connection(("127.0.0.1", running.port), 5).close()
    except ConnectionRefusedError:
        return True
    return False


def answer_on(connection: socket.socket) -> bytes:
    """Send a search on a connection and return the response, up to the end of its JSON or of the connection."""
    connection.settimeout(30)
    connection.sendall(HEAD + b"\r\n" + BODY)
    received = b""
    while not received.endswith(b"}") and (data := connection.recv(65536)):
        received += data
    return received


def test_a_stopping_server_says_so_and_answers_as_long_as_it_listens(shared_isles: Path) -> None:
    with serving(shared_isles, None, unready_s=1.0) as running, httpx2.Client(base_url=running.url) as client:
        assert running.get("/ready").status_code == 200
        assert "connection" not in client.get("/v1/documents").headers
        running.server.should_exit = True
        until(lambda: running.get("/ready").status_code == 503)
        assert running.get("/ready").json()["error"]["code"] == "stopping"
        until(lambda: client.get("/v1/documents").headers.get("connection") == "close", 0.8)
        assert running.post("/v1/retrieve", json={"query": "Lantern"}).status_code == 200
        assert running.get("/health").status_code == 200
        until(lambda: is_refused(running))


def test_by_default_the_server_stops_listening_immediately(shared_isles: Path) -> None:
    with serving(shared_isles, None) as running:
        assert not is_refused(running)
        running.server.should_exit = True
        until(lambda: is_refused(running), 1.0)
        assert is_refused(running)


def test_when_the_server_stops_a_fresh_connection_is_answered_and_an_idle_one_is_closed(shared_isles: Path) -> None:
    with serving(shared_isles, None) as running:
        new, idle = (socket.create_connection(("127.0.0.1", running.port)) for _ in range(2))
        with new, idle:
            assert b" 200 OK" in answer_on(idle)
            running.server.should_exit = True
            until(lambda: is_refused(running))
            assert idle.recv(1) == b""
            answer = answer_on(new)
            assert b" 200 OK" in answer and b"connection: close" in answer.lower()


def test_pending_connections_of_a_listener_are_accepted_when_it_closes() -> None:
    with bound_socket() as listener:
        listener.listen(8)
        address = listener.getsockname()
        waiting = [socket.create_connection(address) for _ in range(3)]
        duplicate = listener.dup()
    for each in waiting:
        each.sendall(b"hello")
    accepted = accept_pending(duplicate)
    assert [each.recv(9) for each in accepted] == [b"hello"] * 3
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    for each in (*waiting, *accepted):
        each.close()


@pytest.mark.slow
def test_clients_that_connect_during_a_stop_are_answered_or_refused(shared_isles: Path) -> None:
    """Without the server's wait for new connections, two of three stops cut a client off.

    With it, the test tolerates one such stop in eight: one has been observed, for an unknown reason.
    """
    stops: list[Counter[str]] = []
    for _ in range(STOPS):
        stops.append(Counter())
        with serving(shared_isles, None, queue=CLIENTS * 10) as running:
            load = Thread(target=lambda port: asyncio.run(ask_until_refused(port, stops[-1])), args=(running.port,))
            load.start()
            time.sleep(0.2)
            running.server.should_exit = True
            load.join(60)
    found = sum(stops, Counter[str]())
    assert found.keys() <= {"200", "refused", "cut"} and sum(each["cut"] > 0 for each in stops) <= 1
    assert found["refused"] == STOPS * CLIENTS and found["200"] > STOPS * CLIENTS


async def ask_until_refused(port: int, found: Counter[str]) -> None:
    async def ask() -> str:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return "refused"
        try:
            writer.write(HEAD + b"Connection: close\r\n\r\n" + BODY)
            line = await reader.readline()
            await reader.read()
        except OSError:
            line = b""
        finally:
            writer.close()
        return line.split()[1].decode() if line else "cut"

    async def client() -> None:
        outcome = ""
        while outcome != "refused":
            outcome = await ask()
            found[outcome] += 1

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
