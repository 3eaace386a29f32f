"""Engines by name, and addresses where no Ray cluster answers."""

import socket
import threading
from contextlib import suppress

import pytest

from graph.errors import UserError
from graph.workers.engines import THIS_PROCESS, open_workers


def test_local_is_this_process_and_takes_a_batch_only_when_its_result_is_needed() -> None:
    with open_workers("local") as workers:
        assert workers is THIS_PROCESS
        batches = iter(range(3))
        found = workers.map(str, batches)
        assert next(found) == "0" and next(batches) == 1


@pytest.mark.parametrize(
    ("engine", "address", "message"),
    [
        ("spark", None, "--engine spark. Expected local or ray"),
        ("local", "head:6379", "--ray-address head:6379, but the engine is local. Expected --engine ray. Add it"),
    ],
)
def test_an_unknown_engine_or_an_unneeded_address_is_refused(engine: str, address: str | None, message: str) -> None:
    with pytest.raises(UserError) as raised, open_workers(engine, address):
        pass
    assert str(raised.value) == message


@pytest.mark.parametrize(
    "address", ["ray://127.0.0.1:10001", "auto", "127.0.0.1:", ":6379", "127.0.0.1:99999", "a..b:6379"]
)
def test_a_malformed_address_is_refused(address: str) -> None:
    with pytest.raises(UserError, match=f"^--ray-address {address}"), open_workers("ray", address):
        pass


@pytest.mark.long
def test_an_address_where_nothing_or_another_service_listens_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setattr("graph.workers.engines.ANSWER_S", 0.3)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(UserError, match=r"cannot be reached \(.*refused\)"), open_workers("ray", address):
            pass
        silent.listen()
        with pytest.raises(UserError, match="no Ray cluster answers there"), open_workers("ray", address):
            pass


SETTINGS, HEADERS, PING, END_STREAM_AND_HEADERS, ACKNOWLEDGED = 4, 1, 6, 5, 1
PREFACE_BYTES, HEAD_BYTES = 24, 9
NOT_FOUND = bytes([0x8D])
"""Frame types, flags and lengths of HTTP/2, and `:status: 404` in its header table (RFC 9113, RFC 7541)."""


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def answer_over_http2(listening: socket.socket) -> None:
    """Serve one client over HTTP/2, as gRPC does, and answer every call with status 404."""
    client, _ = listening.accept()
    with client, client.makefile("rb") as received, suppress(OSError):
        received.read(PREFACE_BYTES)
        client.sendall(frame(SETTINGS, 0, 0) + frame(SETTINGS, ACKNOWLEDGED, 0))
        while head := received.read(HEAD_BYTES):
            payload = received.read(int.from_bytes(head[:3], "big"))
            if head[3] == PING and not head[4] & ACKNOWLEDGED:
                client.sendall(frame(PING, ACKNOWLEDGED, 0, payload))
            if head[3] == HEADERS:
                client.sendall(frame(HEADERS, END_STREAM_AND_HEADERS, int.from_bytes(head[5:], "big"), NOT_FOUND))


def test_another_http2_service_is_reported_and_nothing_else_is_printed(
    capfd: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("ray")
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            listening.accept()[0].close()  # This connection only checks whether anything listens.
            answer_over_http2(listening)

        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(UserError, match="no Ray cluster answers there"), open_workers("ray", address):
            pass
    assert capfd.readouterr().err == ""
