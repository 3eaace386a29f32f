"""How a running server behaves when its engine fails, clients disconnect, the index changes or the process is stopped."""

import asyncio
import json
import os
import signal
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx2
import pytest

from graph.build.build import build_index
from graph.build.stores import read_settings
from graph.types import Document
from serve.engines.openai_backend import OpenAIBackend
from serve.http.errors import ApiError
from tests.fakes import HashEncoder, chat_server
from tests.places import ROOT
from tests.processes import answers, until
from tests.serve.conftest import Stack
from tests.serve.http.running import bound_socket, serving

ASK = {"model": "tiny", "messages": [{"role": "user", "content": "Who built the Lantern?"}]}
CONVERSATION = {
    "model": "tiny",
    "messages": [*ASK["messages"], {"role": "assistant", "content": "A"}, *ASK["messages"]],
}
LONG = " ".join(f"word{number}" for number in range(200))


def test_without_the_engine_chat_requests_are_refused_immediately_and_search_works(shared_isles: Path) -> None:
    with serving(shared_isles, "openai:tiny@http://127.0.0.1:9/v1", feedback=True) as running:
        for body in (
            ASK,
            {**ASK, "stream": True},
            CONVERSATION,
            {**ASK, "retrieval": {"mode": "global", "use_model": True}},
        ):
            started = time.perf_counter()
            response = running.post("/v1/chat/completions", json=body)
            assert response.status_code == 503 and response.headers["retry-after"] and time.perf_counter() - started < 2
            assert response.json()["error"]["code"] == "model_unavailable"
        assert running.post("/v1/retrieve", json={"query": "Lantern"}).status_code == 200
        assert running.get("/health").status_code == 200
        ready = running.get("/ready")
        assert ready.status_code == 503 and ready.json()["error"]["code"] == "model_unavailable"
        assert ready.json()["feedback"] and not ready.json()["writable"] and "status" not in ready.json()
        assert running.metric('modegraph_errors_total{kind="model_unavailable"}') == 5


def test_a_failure_of_the_engine_is_reported_and_ends_a_stream_with_an_error(stack: Stack) -> None:
    running, _ = stack(lambda body, number: (500, "down"))
    response = running.post("/v1/chat/completions", json=ASK)
    assert response.status_code == 503 and "fails (status 500)" in response.json()["error"]["message"]
    malformed, _ = stack(lambda body, number: (200, "<html>"))
    assert malformed.post("/v1/chat/completions", json=ASK).status_code == 502
    stream = 'data: {"choices": [{"index": 0, "delta": {"content": "Hal"}}]}\n\ndata: {"error": {"message": "out of memory"}}\n\n'
    broken, _ = stack(lambda body, number: (200, stream))
    events = broken.post("/v1/chat/completions", json={**ASK, "stream": True}).text.strip().split("\n\n")
    assert (
        "Hal" in events[0]
        and json.loads(events[1][6:])["error"]["code"] == "model_unavailable"
        and events[-1] == "data: [DONE]"
    )


def test_a_stream_may_contain_line_separators_within_a_line_and_null_errors(stack: Stack) -> None:
    choice = {"index": 0, "delta": {"content": "a\u2028b\u2029c\x85d"}, "finish_reason": "stop"}
    chunk = json.dumps({"choices": [choice], "error": None}, ensure_ascii=False)
    for end in ("\n", "\r", "\r\n"):
        running, _ = stack(lambda body, number, end=end: (200, f"data: {chunk}{end * 2}data: [DONE]{end * 2}"))  # type: ignore[misc]
        request = {**ASK, "stream": True, "retrieval": {"enabled": False}}
        events = running.post("/v1/chat/completions", json=request).text.strip().split("\n\n")
        assert json.loads(events[0][6:])["choices"] == [choice] and events[-1] == "data: [DONE]", events


def completion(**changes: object) -> str:
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hal [1]."}, "finish_reason": "stop"}
    return json.dumps({"id": "1", "object": "chat.completion", "created": 0, "choices": [choice], **changes})


MALFORMED_ANSWERS = {
    "no choices": completion(choices=[]),
    "a choice that is null": completion(choices=[None]),
    "a choice without a message": completion(choices=[{"index": 0}]),
    "a message that is a string": completion(choices=[{"index": 0, "message": "Hal"}]),
    "content that is a list": completion(choices=[{"index": 0, "message": {"content": ["Hal"]}}]),
    "an index that is a string": completion(choices=[{"index": "a", "message": {"content": "Hal"}}]),
    "a negative number of tokens": completion(usage={"prompt_tokens": 7, "completion_tokens": -1}),
    "a number of tokens as a word": completion(usage={"prompt_tokens": "many"}),
    "usage that is a list": completion(usage=[1]),
    "deep nesting": completion(more=json.loads("[" * 400 + "]" * 400)),
    "deeper nesting": completion().replace('"choices"', '"a": ' + "[" * 9000 + "]" * 9000 + ', "choices"'),
    "a list": "[]",
    "not JSON": "<html>",
}


def test_a_malformed_answer_of_the_engine_is_reported_as_an_error(shared_isles: Path) -> None:
    replies: list[str] = []
    with (
        chat_server(lambda body, number: (200, replies[-1])) as upstream,
        serving(shared_isles, f"openai:tiny@{upstream.url}") as running,
    ):
        for kind, text in MALFORMED_ANSWERS.items():
            for retrieval in (True, False):
                replies.append(text)
                body = {**ASK, "retrieval": {"enabled": retrieval}}
                response = running.post("/v1/chat/completions", json=body)
                assert (response.status_code, response.json()["error"]["code"]) == (502, "odd_answer"), (
                    kind,
                    response.text,
                )
                replies.append(f"data: {text.replace('message', 'delta')}\n\ndata: [DONE]\n\n")
                response = running.post("/v1/chat/completions", json={**body, "stream": True})
                if kind not in ("no choices", "a choice without a message"):
                    assert '"odd_answer"' in response.text and response.text.endswith("data: [DONE]\n\n"), (
                        kind,
                        response.text,
                    )
        replies.append(completion(usage={"prompt_tokens": 7}))
        assert running.post("/v1/chat/completions", json=ASK).status_code == 200


def test_a_stream_that_the_engine_does_not_end_is_reported_as_truncated(stack: Stack) -> None:
    running, _ = stack(lambda body, number: (200, 'data: {"choices": [{"index": 0, "delta": {"content": "Hal"}}]}\n\n'))
    stream = running.post("/v1/chat/completions", json={**ASK, "stream": True}).text
    assert "Hal" in stream and '"cut_off"' in stream and stream.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("status", [401, 403])
def test_an_engine_that_refuses_the_servers_key_is_reported_as_such(stack: Stack, status: int) -> None:
    running, _ = stack(lambda body, number: (status, json.dumps({"error": {"message": "wrong key sk-123"}})))
    for body in (ASK, {**ASK, "stream": True}):
        response = running.post("/v1/chat/completions", json=body)
        error = response.json()["error"]
        assert (response.status_code, error["code"]) == (502, "model_refuses_key")
        assert (
            str(status) in error["message"] and "OPENAI_API_KEY" in error["message"] and "sk-123" not in response.text
        )
        assert "does not answer" not in error["message"]


@pytest.mark.parametrize("status", [401, 403])
def test_an_engine_that_refuses_the_servers_key_is_not_ready(status: int) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        backend = OpenAIBackend(f"http://127.0.0.1:{server.server_port}/v1", "sk", {"tiny": "tiny"}, str)
        with pytest.raises(ApiError, match=f"refuses this server's key .status {status}"):
            asyncio.run(backend.check())
        server.shutdown()


def test_an_incomplete_response_is_reported_as_an_error_and_not_passed_on() -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b'{"output": [')

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        backend = OpenAIBackend(f"http://127.0.0.1:{server.server_port}/v1", "sk", {"tiny": "tiny"}, str)
        with pytest.raises(ApiError, match="does not answer"):
            asyncio.run(backend.respond({"model": "tiny", "input": "Hello"}))
        server.shutdown()


@pytest.mark.parametrize("retrieval", [True, False])
def test_a_stream_that_exceeds_its_time_limit_ends_with_an_error(stack: Stack, retrieval: bool) -> None:
    running, upstream = stack(LONG, seconds_per_word=0.05, request_timeout_s=0.6)
    body = {**ASK, "stream": True, "retrieval": {"enabled": retrieval}}
    events = running.post("/v1/chat/completions", json=body).text.strip().split("\n\n")
    assert "word0" in "".join(events) and events[-1] == "data: [DONE]"
    assert json.loads(events[-2][6:])["error"]["code"] == "too_long"
    until(lambda: upstream.cut_off == 1)
    assert running.metric('modegraph_errors_total{kind="too_long"}') == 1


@contextmanager
def engine_that_closes_a_connection() -> Iterator[tuple[str, list[int]]]:
    """The address of an engine and its number of chat requests per connection; it closes the first connection at the second request, without an answer."""
    body = json.dumps({"choices": [{"index": 0, "message": {"content": "Hal [1]."}, "finish_reason": "stop"}]}).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    counts: list[int] = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            number: int | None = None
            while line := self.rfile.readline():
                headers = dict(iter(lambda: tuple(self.rfile.readline().strip().lower().split(b": ", 1)), (b"",)))
                self.rfile.read(int(headers.get(b"content-length", 0)))
                if line.startswith(b"POST"):
                    if number is None:
                        number = len(counts)
                        counts.append(0)
                    counts[number] += 1
                    if number == 0 and counts[0] == 2:
                        return
                self.wfile.write(head + body)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", counts
        server.shutdown()


def test_a_request_on_a_pooled_connection_that_the_engine_closes_is_sent_again(shared_isles: Path) -> None:
    with engine_that_closes_a_connection() as (url, counts), serving(shared_isles, f"openai:tiny@{url}") as running:
        responses = [running.post("/v1/chat/completions", json=ASK) for _ in range(2)]
    assert [each.status_code for each in responses] == [200, 200]
    assert counts == [2, 1]


@pytest.mark.parametrize("stream", [True, False])
def test_when_a_client_disconnects_its_request_to_the_engine_ends(stack: Stack, stream: bool) -> None:
    released = threading.Event()
    if stream:
        running, upstream = stack(LONG, seconds_per_word=0.02, capacity=1, queue=0)
    else:
        # The engine answers long after the server should have cancelled the request.
        running, upstream = stack(lambda body, number: str(released.wait(60)), capacity=1, queue=0)
    with httpx2.Client(timeout=0.4) as client, pytest.raises(httpx2.ReadTimeout):
        if stream:
            with client.stream("POST", f"{running.url}/v1/chat/completions", json={**ASK, "stream": True}) as answer:
                next(answer.iter_bytes())
                raise httpx2.ReadTimeout("the client stops reading")
        client.post(f"{running.url}/v1/chat/completions", json=ASK)
    until(lambda: running.metric("modegraph_requests_running") == 0)
    assert running.post("/v1/retrieve", json={"query": "Lantern"}).status_code == 200
    released.set()
    until(lambda: upstream.cut_off == 1)


def test_a_waiting_request_is_dropped_when_its_client_disconnects(stack: Stack) -> None:
    running, upstream = stack(lambda body, number: time.sleep(1.0) or "x", capacity=1, queue=1)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(running.post, "/v1/chat/completions", json=ASK)
        until(lambda: running.metric("modegraph_requests_running") == 1)
        with pytest.raises(httpx2.ReadTimeout):
            httpx2.post(f"{running.url}/v1/chat/completions", json=ASK, timeout=0.2)
        until(lambda: running.metric("modegraph_requests_waiting") == 0)
        assert first.result().status_code == 200
    assert len(upstream.requests) == 1


def test_the_index_is_swapped_under_load_and_no_request_fails(isles: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serve.server.collections.POLL_S", 0.05)
    with (
        chat_server(lambda body, number: "So [1].") as upstream,
        serving(isles, f"openai:tiny@{upstream.url}", queue=8) as running,
    ):
        stop = threading.Event()
        observed: list[tuple[int, int]] = []

        def load(number: int) -> None:
            client = httpx2.Client(base_url=running.url, timeout=30)
            while not stop.is_set():
                search = client.post("/v1/retrieve", json={"query": f"Gull Rock {number} {len(observed)}", "k": 20})
                chat = client.post("/v1/chat/completions", json=ASK)
                generation = search.json()["generation"] if search.status_code == 200 else -1
                passages = len(search.json().get("passages", ()))
                assert passages == 4 + generation, (
                    f"the search found {passages} passages; generation {generation} has {4 + generation}"
                )
                observed.append((generation, chat.status_code))

        with ThreadPoolExecutor() as pool:
            loads = [pool.submit(load, number) for number in range(4)]
            until(lambda: len(observed) >= 4)
            for number in range(2, 5):
                build_index(
                    isles,
                    [Document(f"gull{number}", "Gull Rock", f"Gull Rock number {number} is a lighthouse.")],
                    read_settings(isles),
                    lambda spec: HashEncoder(),
                )
                until(lambda number=number: running.metric('modegraph_index_generation{collection="index"}') == number)  # type: ignore[misc]
            until(lambda: any(generation == 4 for generation, _ in observed))
            stop.set()
            for each in loads:
                each.result()
    assert {generation for generation, _ in observed} >= {1, 4} and {status for _, status in observed} == {200}
    assert len(observed) > 20


def test_an_index_that_cannot_be_read_leaves_the_old_one_in_use(isles: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serve.server.collections.POLL_S", 0.05)
    with chat_server(lambda body, number: "x") as upstream, serving(isles, f"openai:tiny@{upstream.url}") as running:
        manifest = isles / "manifest.json"
        whole = manifest.read_text()
        manifest.write_text(whole.replace("1", "2", 1))
        until(lambda: running.metric('modegraph_index_swaps_total{outcome="failed"}') >= 1)
        assert running.post("/v1/retrieve", json={"query": "Lantern"}).status_code == 200
        manifest.write_text(whole)
        gull = Document("gull", "Gull Rock", "Gull Rock is a lighthouse.")
        build_index(isles, [gull], read_settings(isles), lambda spec: HashEncoder())
        until(lambda: running.metric('modegraph_index_swaps_total{outcome="done"}') == 1)
        assert running.post("/v1/retrieve", json={"query": "Lantern"}).json()["generation"] == 2


SERVER_SCRIPT = """
import sys
from pathlib import Path
from graph.config import parse_settings
from serve.app import build_app, make_services, server_of
from serve.engines.open_backend import VllmOptions, open_backend
from serve.http.settings import ServerSettings
from tests.fakes import HashEncoder
settings = parse_settings(ServerSettings, {"port": int(sys.argv[3]), "drain_s": float(sys.argv[4])}, "test")
backend = open_backend(sys.argv[2], (), VllmOptions())
services = make_services([Path(sys.argv[1])], backend, settings, lambda spec: HashEncoder())
server_of(build_app(services), services).run()
"""


@contextmanager
def streaming_while_the_server_stops(
    index: Path, seconds_per_word: float, drain_s: float
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The whole text of a stream whose server is stopped after the first words, and the process of the server."""
    with bound_socket() as free:
        port = free.getsockname()[1]
    with chat_server(lambda body, number: LONG, seconds_per_word) as upstream:
        arguments = [str(index), f"openai:tiny@{upstream.url}", str(port), str(drain_s)]
        process = subprocess.Popen([sys.executable, "-c", SERVER_SCRIPT, *arguments], cwd=ROOT)
        try:
            url = f"http://127.0.0.1:{port}"
            until(lambda: answers(f"{url}/health"), 60)
            body = {**ASK, "stream": True}
            with httpx2.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=30) as answer:
                pieces = answer.iter_text()
                first = next(pieces)
                os.kill(process.pid, signal.SIGTERM)
                until(lambda: not answers(f"{url}/health"))
                rest = "".join(pieces)
            yield first + rest, process
        finally:
            process.kill()
            process.wait()


def test_on_a_signal_the_server_finishes_running_requests_and_accepts_no_new_ones(shared_isles: Path) -> None:
    with streaming_while_the_server_stops(shared_isles, 0.01, 30) as (response, process):
        assert "word199" in response and response.endswith("data: [DONE]\n\n")
        assert process.wait(20) in (0, -signal.SIGTERM)


def test_a_stream_that_a_stopping_server_cuts_off_ends_with_an_error(shared_isles: Path) -> None:
    with streaming_while_the_server_stops(shared_isles, 0.2, 1) as (response, process):
        events = response.strip().split("\n\n")
        assert "word0" in events[0] and events[-1] == "data: [DONE]"
        assert json.loads(events[-2][6:])["error"]["code"] == "stopping"
        assert process.wait(20) in (0, -signal.SIGTERM)
