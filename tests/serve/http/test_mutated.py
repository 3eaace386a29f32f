"""Almost valid bodies: every JSON route receives mutations of a valid body; none causes a 5xx, and the server drops no connection unannounced.

Half of the mutations change the value (a field removed, of the wrong type, nested, repeated), half change the bytes. A run sends CASES
bodies: 240, or 5,000 if MODEGRAPH_ALL_CASES is set.
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from random import Random
from typing import Any

import httpx2
import pytest

from graph.build.build import build_index
from tests.corpora import ISLES
from tests.fakes import HashEncoder, chat_server
from tests.serve.conftest import SETTINGS
from tests.serve.http.running import MCP_HEADERS, Running, serving

CASES = 5_000 if os.environ.get("MODEGRAPH_ALL_CASES") else 240
QUESTION = "Who built the Lantern?"
TURNS = {"model": "tiny", "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 16, "stream": False}
SEARCH = {"type": "file_search", "vector_store_ids": ["index"], "max_num_results": 3}
FILTER = {"type": "and", "filters": [{"type": "ne", "key": "source", "value": "bread"}]}
ANSWER = {"model": "tiny", "text": "The yard [1]", "reasoning": "", "context_ids": ["0" * 32], "mode": "hops"}
ID = "0" * 32
CALL = {"name": "search", "arguments": {"query": QUESTION, "k": 3}}
BODIES: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {**TURNS, "stop": ["\n"], "temperature": 0.5, "retrieval": {"mode": "hops", "k": 3}}),
    ("/v1/messages", {**TURNS, "system": "Be brief.", "thinking": {"type": "adaptive"}, "metadata": {"user_id": "u"}}),
    ("/v1/responses", {"model": "tiny", "input": QUESTION, "tools": [SEARCH], "text": {"format": {"type": "text"}}}),
    ("/v1/retrieve", {"query": QUESTION, "mode": "dense", "k": 3, "where": ["source!=bread"], "use_model": False}),
    ("/v1/vector_stores/index/search", {"query": [QUESTION], "max_num_results": 3, "filters": FILTER}),
    ("/v1/embeddings", {"model": "minilm", "input": [QUESTION, "Tarn"], "encoding_format": "float"}),
    ("/v1/rerank", {"query": QUESTION, "documents": ["a ferry", {"text": "a yard"}], "top_n": 1}),
    ("/v1/documents", {"documents": [{"source": "x", "title": "X", "text": " ", "metadata": {"year": 1911}}]}),
    (
        "/v1/feedback",
        {"kind": "vote", "user": "reader-0001", "consent": True, "question": "Who?", "answer": ANSWER, "rating": "up"},
    ),
    ("/v1/feedback", {"kind": "passage", "user": "reader-1", "consent": False, "question": "Who?", "passage_id": ID}),
    ("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": CALL}),
    ("/mcp", {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {"_meta": {}}}),
]
"""Valid bodies for each route; the one for documents fails only the last check, so that no index is written."""
ODD_VALUES: list[Any] = [
    *(
        None,
        True,
        0,
        -1,
        10**400,
        1e308,
        "",
        " ",
        "\0",
        "\ud800",
        "😀" * 50,
        "x" * 10_000,
        [],
        {},
        [[]],
        [None],
        {"": {}},
    ),
    *("\u202e", "../../etc/passwd", "tiny@index", "%s%n", "index", "-0", "1e9", {"type": "x"}, [{}] * 200),
]
NESTING_DEPTH = 2_000


def parts_of(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every value in a body, given by its container and its key or index."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    for key in keys:
        yield value, key
        yield from parts_of(value[key])


def mutate_value(rng: Random, body: dict[str, Any]) -> bytes:
    """The body with one to three of its values removed, repeated, renamed, replaced or deeply nested."""
    mutated = json.loads(json.dumps(body))
    for _ in range(rng.randint(1, 3)):
        places = list(parts_of(mutated))
        if not places:
            break
        container, key = rng.choice(places)
        way = rng.randrange(6)
        if way == 0:
            del container[key]
        elif way == 1:
            container[key] = [deepcopy(container[key]) for _ in range(rng.choice([1, 2, 300]))]
        elif way == 2 and isinstance(container, dict):
            container[rng.choice(["", key.upper(), f"{key}s", "retrieval", "__proto__", "\ud800"])] = container.pop(key)
        elif way == 3:
            other, where = rng.choice(places)
            if where in other if isinstance(other, dict) else where < len(other):
                container[key] = json.loads(json.dumps(other[where]))
        elif way == 4 and rng.random() < 0.2:
            text = json.dumps(mutated)
            deep = "[" * NESTING_DEPTH + "]" * NESTING_DEPTH
            return text.replace(json.dumps(container[key]), deep, 1).encode()
        else:
            container[key] = deepcopy(rng.choice(ODD_VALUES))
    return json.dumps(mutated).encode()


def mutate_bytes(rng: Random, body: dict[str, Any]) -> bytes:
    """The body with bytes inserted, deleted, changed, repeated or appended."""
    mutated = bytearray(json.dumps(body).encode())
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(mutated) + 1)
        way = rng.randrange(5)
        if way == 0:
            mutated[place:place] = rng.choice(
                [b'"', b"{", b"}", b"[", b",", b":", b"\\", b"\\ud800", b"\xff", b"\0", b"NaN"]
            )
        elif way == 1:
            del mutated[place : place + rng.choice([1, 1, 1, 5, 50])]
        elif way == 2 and place < len(mutated):
            mutated[place] = rng.randrange(256)
        elif way == 3:
            end = rng.randrange(len(mutated) + 1)
            mutated[place:place] = mutated[min(place, end) : max(place, end)]
        else:
            mutated += rng.choice([b"", bytes(mutated[:place]), b" " * 1000, b"\n{}"])
    return bytes(mutated)


MUTATIONS: list[Callable[[Random, dict[str, Any]], bytes]] = [mutate_value, mutate_bytes]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("mutated") / "index"
    build_index(folder, ISLES, SETTINGS, lambda spec: HashEncoder())
    with (
        chat_server(lambda body, number: "So [1] [9].") as upstream,
        serving(folder, f"openai:tiny@{upstream.url}", writable=True, feedback=True) as server,
    ):
        yield server


def headers_for(path: str) -> dict[str, str]:
    """The headers that a client of the route sends."""
    return {"Content-Type": "application/json", **(MCP_HEADERS if path == "/mcp" else {})}


@pytest.mark.parametrize(("path", "body"), BODIES)
def test_the_bodies_are_valid_before_they_are_mutated(running: Running, path: str, body: dict[str, Any]) -> None:
    response = running.post(path, json=body, headers=headers_for(path))
    if path == "/v1/documents":
        assert response.json()["error"]["code"] == "empty_document"
    else:
        assert response.status_code == 200 and '"error"' not in response.text[:100], response.text


@pytest.mark.slow
def test_no_mutated_body_causes_a_5xx_or_a_dropped_connection(running: Running) -> None:
    rng = Random(0)
    statuses: Counter[int] = Counter()
    events: Counter[str] = Counter()
    trace = {"trace": lambda name, info: events.update([name])}
    closed = 0
    with httpx2.Client(base_url=running.url, timeout=30, trust_env=False) as client:
        for number in range(CASES):
            path, body = BODIES[number % len(BODIES)]
            data = MUTATIONS[number // len(BODIES) % 2](rng, body)
            response = client.post(path, content=data, headers=headers_for(path), extensions=trace)
            closed += response.headers.get("connection") == "close"
            assert response.status_code < 500, (path, data[:2000], response.text[:500])
            assert response.status_code != 200 or response.content
            statuses[response.status_code] += 1
    opened = events["connection.connect_tcp.complete"]
    connections = f"{opened} connections, {closed} closed as announced"
    print(f"{statuses.total():,} mutated bodies, by status {dict(sorted(statuses.items()))}; {connections}")
    assert opened - closed in (0, 1), f"the server dropped a connection without announcing it: {connections}"
    assert running.get("/health").status_code == 200
    assert statuses[200] > CASES // 50 and statuses[422] > CASES // 10 and statuses[400] > CASES // 10
