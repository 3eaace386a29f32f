"""The time of a refusal does not reveal whether its target exists: refusing a target that a key may not see takes the same calls as refusing an absent one.

The tests count the calls of our functions during a request; benchmarks/refusals.py measures the time.
"""

import inspect
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import Any

import httpx2
import pytest

from serve.server import collections
from tests.places import ROOT
from tests.serve.http.running import MCP_HEADERS
from tests.serve.http.shared_server import Holder, SharedServer, hidden_collection, requests_to_refuse, serving_shared

OURS = tuple(f"{ROOT / folder}/" for folder in ("serve", "graph"))
IGNORED = {str(ROOT / "serve/http" / file) for file in ("connections.py", "otlp.py")}
"""Files whose code runs once per connection, before a request is read, in the thread that sends traces, or in the loop that waits to stop."""
RESUMED = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_GENERATOR
"""Flags of code that is counted once, however often it resumes as pieces of a request arrive."""
LOGGING_S = 0.02
"""How long the server may keep working after it has sent an answer, to log the request."""


class CallCounter:
    """Counts, while `recording`, the calls of our functions in threads that start after it was created."""

    def __init__(self) -> None:
        self.recording = False
        self._counted: Counter[str] = Counter()

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        ours = code.co_filename.startswith(OURS) and code.co_filename not in IGNORED
        if self.recording and event == "call" and ours:
            name = f"{code.co_filename}:{code.co_qualname}"
            self._counted[name] = 1 if code.co_flags & RESUMED else self._counted[name] + 1

    def count_during(self, ask: Callable[[], object]) -> Counter[str]:
        """The functions that the server calls while `ask` runs, and how often."""
        self._counted = Counter()
        self.recording = True
        try:
            ask()
            time.sleep(LOGGING_S)
        finally:
            self.recording = False
        return self._counted


@pytest.fixture(scope="module")
def server_and_calls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SharedServer, CallCounter]]:
    """The server, which does not poll for a changed index, and a counter of its function calls."""
    calls = CallCounter()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collections, "POLL_S", 3600.0)
        threading.setprofile(calls)
        try:
            with serving_shared(tmp_path_factory.mktemp("shared")) as shared:
                yield shared, calls
        finally:
            threading.setprofile(None)  # type: ignore[arg-type]


HOLDERS = ("label", "writer", "collection")


def assert_same_calls(
    calls: CallCounter, hidden: list[Callable[[], httpx2.Response]], absent: list[Callable[[], httpx2.Response]]
) -> None:
    """Check that the two requests of each pair cause the same function calls and get the same status."""
    for number, (one, other) in enumerate(zip(hidden, absent, strict=True)):
        assert one().status_code == other().status_code, f"request {number}"
        counts = calls.count_during(one), calls.count_during(other)
        assert counts[0] == counts[1], (f"request {number}", counts[0] - counts[1], counts[1] - counts[0])
        assert sum(counts[0].values()) > 10, "the calls in the server's threads should be counted"


@pytest.mark.parametrize("name", HOLDERS)
def test_refusing_a_hidden_target_takes_the_same_calls_as_refusing_an_absent_one(
    server_and_calls: tuple[SharedServer, CallCounter], name: str
) -> None:
    shared, calls = server_and_calls
    holder = shared.holders[name]
    source = holder.hidden_documents[0][1]
    hidden = requests_to_refuse(shared, holder, hidden_collection(holder), source)
    absent = requests_to_refuse(shared, holder, "zz9zz", f"{source.partition('/')[0]}/nix")
    assert_same_calls(calls, hidden, absent)


def mcp_request(shared: SharedServer, holder: Holder, method: str, **parameters: Any) -> Callable[[], httpx2.Response]:
    """An MCP request that must be refused."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}

    def ask() -> httpx2.Response:
        response = shared.running.post("/mcp", json=body, headers={**holder.headers, **MCP_HEADERS})
        answer = response.json()
        assert "error" in answer or answer["result"]["isError"], answer
        return response

    return ask


def mcp_refusals(
    shared: SharedServer, holder: Holder, collection: str, source: str, passage: str
) -> list[Callable[[], httpx2.Response]]:
    """MCP requests that name a collection, a document or a passage."""
    here, who = {"collection": holder.collection}, {"query": "Who?"}
    tools = [
        ("fetch", {"id": source, **here}),
        ("fetch", {"id": passage, **here}),
        ("fetch", {"id": source, "collection": collection}),
        ("search", {**who, "collection": collection}),
        ("search", {**who, **here, "where": [f"source={source}"]}),
        ("ask", {"question": "Who?", "collection": collection}),
    ]
    places = (f"modegraph://{holder.collection}/{source}", f"modegraph://{collection}/{source}")
    return [
        *(mcp_request(shared, holder, "tools/call", name=tool, arguments=arguments) for tool, arguments in tools),
        *(mcp_request(shared, holder, "resources/read", uri=uri) for uri in places),
    ]


@pytest.mark.parametrize("name", HOLDERS)
def test_in_mcp_and_the_graph_hidden_and_absent_targets_take_the_same_calls(
    server_and_calls: tuple[SharedServer, CallCounter], name: str
) -> None:
    shared, calls = server_and_calls
    holder = shared.holders[name]
    where, source = holder.hidden_documents[0]
    (passage,) = (each.id for each in shared.running.services.collections.live[where].current.index.passages_of(source))
    absent, nowhere = f"{source.partition('/')[0]}/nix", "0" * len(passage)
    assert_same_calls(
        calls,
        mcp_refusals(shared, holder, hidden_collection(holder), source, passage),
        mcp_refusals(shared, holder, "zz9zz", absent, nowhere),
    )
    node = f"/v1/graph/neighbourhood?collection={holder.collection}&kind=passage&id="
    nodes = [partial(shared.running.get, node + each, headers=holder.headers) for each in (passage, nowhere)]
    assert_same_calls(calls, nodes[:1], nodes[1:])


@pytest.mark.parametrize("name", ["label", "writer"])
def test_looking_up_a_reader_of_another_key_takes_the_same_calls_as_looking_up_an_unknown_one(
    server_and_calls: tuple[SharedServer, CallCounter], name: str
) -> None:
    """The operator and another key have left feedback under the reader's name; a key that may not see it can list and delete nothing."""
    shared, calls = server_and_calls
    holder = shared.holders[name]
    (other,) = {"label", "writer"} - {name}
    at, vote = "?collection=isles", {"kind": "vote", "user": f"reader-{other}", "consent": True, "question": "Who?"}
    vote |= {"rating": "up", "answer": {"model": "tiny", "text": "so"}}
    for headers in (shared.operator, shared.holders[other].headers):
        assert shared.running.post(f"/v1/feedback{at}", json=vote, headers=headers).status_code == 200

    def calls_of(reader: str) -> list[Callable[[], httpx2.Response]]:
        ways = (shared.running.get, shared.running.delete)
        names = (reader, f"{other}/{reader}")
        return [partial(way, f"/v1/feedback/{each}{at}", headers=holder.headers) for way in ways for each in names]

    assert all(each().json() in ({"entries": []}, {"deleted": 0}) for each in calls_of(f"reader-{other}"))
    assert_same_calls(calls, calls_of(f"reader-{other}"), calls_of("reader-nobody"))


def test_a_server_that_opens_a_resource_before_refusing_it_is_detected(
    server_and_calls: tuple[SharedServer, CallCounter], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests above would fail if the server opened an existing collection before it refused a request."""
    shared, calls = server_and_calls
    holder = shared.holders["collection"]
    resolve_name = collections.Collections.resolve_name

    def opening_first(
        self: collections.Collections, access: object, name: str | None, field: str = "collection"
    ) -> str:
        if name in self.live:
            self.live[name].current.metadata("sea/ada")
        return resolve_name(self, access, name, field)  # type: ignore[arg-type]

    monkeypatch.setattr(collections.Collections, "resolve_name", opening_first)
    hidden, absent = (requests_to_refuse(shared, holder, name, "sea/ada")[0] for name in ("isles", "zz9zz"))
    hidden(), absent()
    assert calls.count_during(hidden) != calls.count_during(absent)
    assert sys.getprofile() is None
