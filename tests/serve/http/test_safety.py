"""Wrong keys, pages of other sites, and excessive, slow or invalid requests: the server refuses them with a clear error and keeps running."""

import json
import logging
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from graph.config import parse_settings
from graph.errors import UserError
from serve.http import connections
from serve.http.settings import ServerSettings
from tests.corpora import ISLES
from tests.fakes import chat_server
from tests.processes import until
from tests.serve.conftest import Stack
from tests.serve.http.running import Running, serving

KEY = "sk-only-for-this-test"
ASK = {"model": "tiny", "messages": [{"role": "user", "content": "Who built the Lantern?"}]}
PATHS = ["/", "/v1/models", "/metrics", "/docs", "/openapi.json", "/v1/documents", "/v1/graph/layers", "/nowhere"]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org"])
def test_an_address_that_other_machines_can_reach_needs_a_key(host: str) -> None:
    with pytest.raises(UserError, match="give --api-key"):
        parse_settings(ServerSettings, {"host": host}, "serve")
    assert parse_settings(ServerSettings, {"host": host, "api_key": KEY}, "serve").host == host
    with pytest.raises(UserError, match="API key is empty"):
        parse_settings(ServerSettings, {"host": host, "api_key": " "}, "serve")


def test_the_final_newline_of_a_key_is_ignored_and_a_key_that_no_header_can_contain_is_refused(
    shared_isles: Path,
) -> None:
    with serving(shared_isles, None, api_key=f"{KEY}\n") as running:
        assert running.get("/v1/models", headers={"X-Api-Key": KEY}).status_code == 200
    for key in ("schlüssel", "a\nb"):
        with pytest.raises(UserError, match="printable ASCII") as refusal:
            parse_settings(ServerSettings, {"api_key": key}, "serve")
        assert key not in str(refusal.value)


def test_if_a_key_is_set_all_routes_except_health_and_ready_require_it(
    stack: Stack, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    running, upstream = stack(api_key=KEY)
    for path in PATHS:
        for authorization in (
            "",
            KEY,
            "Bearer",
            *(f"Bearer {key}" for key in ("wrong", "ü", KEY[:-1], f"{KEY}s", KEY.upper())),
        ):
            response = running.get(path, headers={"Authorization": authorization.encode()} if authorization else {})
            assert response.status_code == 401 and response.headers["www-authenticate"] == "Bearer", path
        for bad in ("", "wrong", "ü", KEY[:-1], f"{KEY}s", f"Bearer {KEY}"):
            assert running.get(path, headers={"X-Api-Key": bad.encode()}).status_code == 401, (path, bad)
        both = {"Authorization": "Bearer wrong", "X-Api-Key": KEY}
        assert running.get(path, headers=both).status_code == 401, (
            "Authorization should take precedence if both are sent"
        )
        assert running.get(path, headers={"X-Api-Key": KEY}).status_code != 401, path
    assert running.post("/v1/chat/completions", json=ASK).status_code == 401 and upstream.requests == []
    assert running.get("/health").status_code == running.get("/ready").status_code == 200
    assert running.get("/ready").json()["collections"] == [] and running.get("/ready").json()["index"] is None
    assert running.get("/ready", headers={"X-Api-Key": KEY}).json()["documents"] == len(ISLES)
    with pytest.raises(openai.AuthenticationError):
        running.client("nonsense").models.list()
    assert running.client(KEY).chat.completions.create(**ASK).choices  # type: ignore[call-overload]
    assert KEY not in caplog.text and "nonsense" not in caplog.text


def test_without_a_key_pages_of_other_sites_are_refused(stack: Stack) -> None:
    running, upstream = stack()
    rebound = running.post("/v1/chat/completions", json=ASK, headers={"Host": "evil.example"})
    cross_origin = running.post("/v1/chat/completions", json=ASK, headers={"Origin": "https://evil.example"})
    form = running.post("/v1/chat/completions", content=json.dumps(ASK), headers={"Content-Type": "text/plain"})
    assert (rebound.status_code, cross_origin.status_code, form.status_code) == (
        403,
        403,
        422,
    ) and upstream.requests == []
    own = running.post("/v1/chat/completions", json=ASK, headers={"Origin": running.url})
    assert own.status_code == 200


def browser_headers(origin: str = "", **fetch: str) -> dict[str, str]:
    """The headers by which a browser identifies the page that sends a request."""
    headers = {f"Sec-Fetch-{name.title()}": value for name, value in fetch.items()}
    return {"User-Agent": "Mozilla/5.0", **({"Origin": origin} if origin else {}), **headers}


OTHER_ORIGINS = {
    "another port": browser_headers("http://127.0.0.1:9200", site="same-site", mode="no-cors"),
    "another name of this machine": browser_headers("http://localhost:PORT", site="cross-site"),
    "another scheme": browser_headers("https://127.0.0.1:PORT"),
    "a file or a frame without an origin": browser_headers("null"),
    "no origin sent": browser_headers(site="same-site", mode="no-cors"),
    "a form that is sent by a page": browser_headers(site="cross-site", mode="navigate"),
    "an old browser": browser_headers(),
}


def test_pages_of_other_origins_cannot_add_documents_but_the_servers_page_and_programs_can(isles: Path) -> None:
    """The pages send a form with a file, which browsers send to other origins without a preflight request."""
    with serving(isles, None, writable=True) as running:
        files = {"files": ("planted.md", b"The Lantern was built by nobody.")}
        for page, headers in OTHER_ORIGINS.items():
            headers = {name: value.replace("PORT", str(running.port)) for name, value in headers.items()}
            assert running.post("/v1/documents/files", files=files, headers=headers).status_code == 403, page
            assert "planted.md" not in running.get("/v1/documents").text
        for headers in (
            browser_headers(running.url, site="same-origin"),
            browser_headers(running.url),
            browser_headers(site="same-origin"),
            {},
        ):
            assert running.post("/v1/documents/files", files=files, headers=headers).status_code == 200, headers
        assert running.get("/", headers=browser_headers(site="cross-site", mode="navigate")).status_code == 200
        assert (
            running.get("/v1/graph/entities", headers=browser_headers(site="same-site", mode="no-cors")).status_code
            == 403
        )


def chat_body(**changes: object) -> bytes:
    return json.dumps({**ASK, **changes}).encode()


def question_body(question: str) -> bytes:
    return chat_body(messages=[{"role": "user", "content": question}])


INVALID_REQUESTS = {
    "not JSON": (b"{", 400, "not JSON"),
    "deep JSON": (b"[" * 100_000, 400, ""),
    "not an object": (b"[]", 422, ""),
    "empty body": (b"", 422, ""),
    "unknown model": (chat_body(model="gpt-9"), 404, "'gpt-9' is not served"),
    "no messages": (chat_body(messages=[]), 422, "messages"),
    "empty question": (question_body("  \n "), 400, "question is empty"),
    "1 MB question": (question_body("w" * 1_000_000), 400, "1,000,000 characters; the limit is 8,000"),
    "2 MB body": (question_body("w" * 2_000_000), 413, "longer than 1,048,576 bytes"),
    "k = 10^9": (chat_body(retrieval={"k": 10**9}), 422, "retrieval.k: Input should be less than or equal to 100"),
    "k = 0": (chat_body(retrieval={"k": 0}), 422, "retrieval.k"),
    "unknown mode": (chat_body(retrieval={"mode": "magic"}), 422, "retrieval.mode"),
    "unknown setting": (chat_body(retrieval={"top": 3}), 422, "retrieval.top"),
    "bad filter": (chat_body(retrieval={"where": ["nonsense"]}), 400, "filter 'nonsense'"),
    "selector's path": (chat_body(retrieval={"selector": "/etc"}), 422, "retrieval.selector"),
    "no trained selector": (chat_body(retrieval={"selector": "trained"}), 400, "without --selector"),
    "no reranker": (chat_body(retrieval={"reranker": True}), 400, "without --reranker"),
    "an image": (chat_body(messages=[{"role": "user", "content": [{"type": "image_url"}]}]), 422, "messages"),
    "last turn is not the user's": (
        chat_body(messages=[{"role": "assistant", "content": "a"}]),
        400,
        "must be the user's",
    ),
    "temperature": (chat_body(temperature=99), 422, "temperature"),
    "not a number": (b'{"model": "tiny", "messages": [{"role": "user", "content": "a"}], "seed": NaN}', 422, "seed"),
    "incomplete character": (b'{"model": "tiny", "messages": [{"role": "user", "content": "\\ud800"}]}', 422, ""),
}


@pytest.fixture(scope="module")
def shared_server(shared_isles) -> Iterator[Running]:  # type: ignore[no-untyped-def]
    with chat_server(lambda body, n: "x") as upstream, serving(shared_isles, f"openai:tiny@{upstream.url}") as running:
        yield running


@pytest.mark.parametrize("case", INVALID_REQUESTS)
def test_an_invalid_request_gets_a_clear_error(shared_server: Running, case: str) -> None:
    body, status, message = INVALID_REQUESTS[case]
    response = shared_server.post("/v1/chat/completions", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert message in error["message"] and set(error) == {"message", "type", "param", "code"}
    assert shared_server.get("/health").status_code == 200


DOCUMENT = {"source": "a", "title": "b", "text": "c"}
PARTS = [{"type": "image_url", "image_url": {"url": "http://x"}}]
INVALID_FIELDS = [
    ("chat/completions", {**ASK, "stop": {}}, "stop"),
    ("chat/completions", {**ASK, "stop": ["a", 1]}, "stop.1"),
    ("chat/completions", {**ASK, "messages": [1]}, "messages.0"),
    ("chat/completions", {**ASK, "messages": [{"role": "user", "content": {}}]}, "messages.0.content"),
    ("chat/completions", {**ASK, "messages": [{"role": "user", "content": PARTS}]}, "messages.0.content.0.type"),
    ("chat/completions", {**ASK, "retrieval": []}, "retrieval"),
    ("chat/completions", {**ASK, "retrieval": {"where": {}}}, "retrieval.where"),
    ("chat/completions", {**ASK, "stream_options": 1}, "stream_options"),
    ("chat/completions", {"model": "tiny"}, "messages"),
    ("chat/completions", [], None),
    ("retrieve", {"query": "a", "model": {}}, "model"),
    ("documents", {"documents": [{**DOCUMENT, "metadata": {"a": {}}}]}, "documents.0.metadata.a"),
    ("documents", {"documents": [{**DOCUMENT, "metadata": {"a": [{}]}}]}, "documents.0.metadata.a.0"),
    ("documents", {"documents": [{**DOCUMENT, "metadata": {"": 1}}]}, "documents.0.metadata."),
    ("documents", {"documents": [{"source": "\ud800"}]}, "documents.0.source"),
]


@pytest.mark.parametrize(("path", "body", "place"), INVALID_FIELDS)
def test_an_error_names_the_field_and_no_internals(shared_server: Running, path: str, body: object, place: str) -> None:
    response = shared_server.post(f"/v1/{path}", content=json.dumps(body), headers={"Content-Type": "application/json"})
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (422, place)
    message = error["message"].lower()
    assert not [
        word for word in ("function", "partial", "0x", "class", "instance", "dict", "[", "extract") if word in message
    ]


def test_an_upload_without_a_file_is_refused(shared_server: Running) -> None:
    body = b'--b\r\nContent-Disposition: form-data; name="files"\r\n\r\nx\r\n--b--\r\n'
    response = shared_server.post(
        "/v1/documents/files", content=body, headers={"Content-Type": "multipart/form-data; boundary=b"}
    )
    assert (response.status_code, response.json()["error"]["message"]) == (422, "files: expected a file")


def test_unknown_addresses_and_methods_are_refused(shared_server: Running) -> None:
    assert shared_server.get("/nowhere").json()["error"]["code"] == "no_such_address"
    assert shared_server.get("/v1/chat/completions").status_code == 405
    assert shared_server.post("/v1/responses", json={"model": "gpt-9", "input": "a"}).status_code == 404
    for odd in ([], {}, None, 1):
        assert shared_server.post("/v1/responses", json={"model": odd, "input": "a"}).status_code == 422
    assert (
        shared_server.post("/v1/responses", content=b"{", headers={"Content-Type": "application/json"}).status_code
        == 400
    )
    for path in (
        "/..%2f..%2fetc%2fpasswd",
        "/%00",
        "/v1/documents/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "/v1/documents/%00",
    ):
        assert shared_server.get(path).status_code == 404, path


def begin_request(running: Running, head: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", running.port), timeout=10)
    connection.sendall(f"{head} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n".encode())
    return connection


def read_to_end(connection: socket.socket) -> str:
    """Everything that arrives until the server closes the connection, as it does after a body that it has not read to the end."""
    parts = []
    while part := connection.recv(4096):
        parts.append(part)
    return b"".join(parts).decode()


def test_a_body_that_arrives_too_slowly_is_refused(stack: Stack) -> None:
    running, _ = stack(body_timeout_s=0.3)
    slow = begin_request(running, "POST /v1/retrieve")
    slow.sendall(b"Content-Length: 100\r\n\r\n{")
    answer = read_to_end(slow)
    assert answer.startswith("HTTP/1.1 408") and "within 0.3 s" in answer
    assert running.post("/v1/retrieve", json={"query": "Lantern"}).status_code == 200


def test_a_body_without_a_length_is_refused_at_the_limit(stack: Stack) -> None:
    running, _ = stack(max_body_bytes=2048)
    long = begin_request(running, "POST /v1/retrieve")
    long.sendall(b"Transfer-Encoding: chunked\r\n\r\n" + b"400\r\n" + b" " * 1024 + b"\r\n")
    long.sendall(b"800\r\n" + b" " * 2048 + b"\r\n")
    assert long.recv(4096).decode().startswith("HTTP/1.1 413")
    huge = begin_request(running, "POST /v1/retrieve")
    huge.sendall(b"Content-Length: 99999999999999999999999999\r\n\r\n")
    assert huge.recv(4096).decode().startswith(("HTTP/1.1 413", "HTTP/1.1 400"))


def test_a_client_that_sends_too_much_can_read_the_refusal(stack: Stack, linger_s: float) -> None:
    """If the server closed the connection right after its answer, the client would be cut off while sending, and could not read the answer."""
    running, _ = stack(max_body_bytes=2048)
    for framing in ("Content-Length: 3145728\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n"):
        sender = begin_request(running, "POST /v1/retrieve")
        sender.sendall(framing.encode())
        for _ in range(3):
            sender.sendall(b"100000\r\n" * framing.startswith("T") + b" " * 1048576 + b"\r\n" * framing.startswith("T"))
            time.sleep(0.05)
        assert read_to_end(sender).startswith("HTTP/1.1 413")
    assert running.post("/v1/retrieve", json={"query": "Lantern"}).status_code == 200


@pytest.mark.parametrize(
    ("version", "headers"),
    [("1.1", "Content-Length: 5\r\nTransfer-Encoding: chunked"), ("1.0", "Transfer-Encoding: chunked")],
)
def test_a_request_with_an_ambiguous_length_is_refused(shared_server: Running, version: str, headers: str) -> None:
    with socket.create_connection(("127.0.0.1", shared_server.port), timeout=10) as connection:
        head = f"POST /v1/retrieve HTTP/{version}\r\nHost: localhost\r\nContent-Type: application/json\r\n{headers}\r\n\r\n"
        connection.sendall(
            head.encode() + b'13\r\n{"query": "Lantern"}\r\n0\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n'
        )
        answer = read_to_end(connection)
    assert answer.startswith("HTTP/1.1 400") and answer.count("HTTP/1.1") == 1


WAITING = "modegraph_requests_waiting"


def occupying_request(running: Running) -> socket.socket:
    """A request that occupies the only slot of the server, because its body never arrives."""
    first = begin_request(running, "POST /v1/retrieve")
    first.sendall(b"Content-Length: 10\r\n\r\n")
    until(lambda: running.metric(WAITING) == 1)
    return first


@pytest.fixture
def linger_s(monkeypatch: pytest.MonkeyPatch) -> float:
    """Seconds after which the server closes a refused connection: enough for a client on a busy machine to send everything."""
    monkeypatch.setattr(connections, "LINGER_S", 4.0)
    return connections.LINGER_S


def test_a_request_over_capacity_is_refused_before_its_body_is_read(stack: Stack) -> None:
    running, _ = stack(capacity=1, queue=0, body_timeout_s=20)
    first = occupying_request(running)
    second = begin_request(running, "POST /v1/retrieve")
    started = time.perf_counter()
    second.sendall(b"Content-Length: 500000\r\n\r\n")
    answer = read_to_end(second)
    assert answer.startswith("HTTP/1.1 429") and "retry-after: 1" in answer.lower()
    assert time.perf_counter() - started < 10, "the refusal should come well before the timeout of the body"
    first.close()
    until(lambda: running.metric(WAITING) == 0)
    assert running.post("/v1/retrieve", json={"query": "Lantern"}).status_code == 200
    assert running.metric('modegraph_errors_total{kind="full"}') == 1


@pytest.mark.parametrize(
    "rest", [b"", b"Content-Length: 3145728\r\n\r\n" + b" " * 3145728], ids=["the head", "a long body"]
)
def test_a_client_refused_at_its_first_line_can_read_the_reason_whatever_it_sends_next(
    stack: Stack, rest: bytes, linger_s: float
) -> None:
    """The rest of the head, and the body, arrive after the answer has been written."""
    running, _ = stack(capacity=1, queue=0, body_timeout_s=20)
    first = occupying_request(running)
    second = begin_request(running, "POST /v1/retrieve")
    until(lambda: running.metric('modegraph_errors_total{kind="full"}') == 1)
    second.sendall(rest or b"Content-Length: 10\r\n\r\n")
    time.sleep(0.1)
    assert read_to_end(second).startswith("HTTP/1.1 429")
    first.close()


@pytest.mark.parametrize("head", ["POST /v1/retrieve HTTP/1.0\r\nTransfer-Encoding: chunked", "nonsense"])
def test_a_client_refused_for_its_head_can_read_the_reason_while_sending(
    shared_server: Running, head: str, linger_s: float
) -> None:
    with socket.create_connection(("127.0.0.1", shared_server.port), timeout=10) as sender:
        sender.sendall(f"{head}\r\nHost: localhost\r\n\r\n".encode())
        for _ in range(3):
            time.sleep(0.05)
            sender.sendall(b" " * 1048576)
        assert read_to_end(sender).startswith("HTTP/1.1 400")


def test_a_refused_connection_ends_even_if_the_client_does_not_close_it(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server closes the connection after LINGER_S, or immediately if it has read the whole request."""
    linger_s = 1.5
    monkeypatch.setattr(connections, "LINGER_S", linger_s)
    running, _ = stack(max_body_bytes=2048)
    unread, complete = begin_request(running, "POST /v1/retrieve"), begin_request(running, "GET /health")
    unread.sendall(b"Content-Length: 5000\r\n\r\n")
    complete.sendall(b"Connection: close\r\n\r\n")
    assert read_to_end(unread).startswith("HTTP/1.1 413") and read_to_end(complete).startswith("HTTP/1.1 200")
    until(lambda: is_reset_or_closed(complete), linger_s / 2)
    assert not is_reset_or_closed(unread)
    until(lambda: is_reset_or_closed(unread), 3 * linger_s)


def is_reset_or_closed(connection: socket.socket) -> bool:
    """Whether the server has closed the connection, so that sending fails."""
    try:
        connection.sendall(b" ")
        time.sleep(0.05)
        connection.sendall(b" ")
    except (ConnectionResetError, BrokenPipeError):
        return True
    return False


def test_an_answer_that_takes_too_long_gets_status_504(stack: Stack) -> None:
    def late(body: dict, number: int) -> str:  # type: ignore[type-arg]
        time.sleep(1.0)
        return "x"

    running, _ = stack(late, request_timeout_s=0.3)
    response = running.post("/v1/chat/completions", json=ASK)
    assert response.status_code == 504 and "0.3 s" in response.json()["error"]["message"]


def test_the_password_of_the_model_server_is_not_revealed(caplog: pytest.LogCaptureFixture, shared_isles) -> None:  # type: ignore[no-untyped-def]
    caplog.set_level(logging.DEBUG, logger="modegraph")
    with serving(shared_isles, "openai:tiny@http://user:hidden-word@127.0.0.1:9/v1") as running:
        chat_response = running.post("/v1/chat/completions", json=ASK)
        search = running.post("/v1/retrieve", json={"query": "Lantern", "mode": "local", "use_model": True})
    assert chat_response.status_code == search.status_code == 503
    assert (
        "hidden-word" not in chat_response.text + search.text + caplog.text and "127.0.0.1:9" not in chat_response.text
    )
