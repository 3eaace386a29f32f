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
from tests.serve.http.shared_server import Holder, SharedServer, hidden_collection, requests_to_refuse, serving_shared

OURS = tuple(f"{ROOT / folder}/" for folder in ("serve", "graph"))
IGNORED = {str(ROOT / "serve/http" / file) for file in ("connections.py", "otlp.py")}
"""Code that runs per connection, before a request is read, in the thread that sends traces, or in the loop that waits to stop."""
RESUMED = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_GENERATOR
"""Flags of code that is counted once, however often it resumes as pieces of a request arrive."""
LOGGED_S = 0.02
"""How long the server may keep working after an answer, to log it."""


class Calls:
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

    def of(self, ask: Callable[[], object]) -> Counter[str]:
        """The functions that the server calls while `ask` runs, and how often."""
        self._counted = Counter()
        self.recording = True
        try:
            ask()
            time.sleep(LOGGED_S)
        finally:
            self.recording = False
        return self._counted


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SharedServer, Calls]]:
    """The server, which does not poll for a changed index while calls are counted."""
    calls = Calls()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collections, "POLL_S", 3600.0)
        threading.setprofile(calls)
        try:
            with serving_shared(tmp_path_factory.mktemp("watched")) as shared:
                yield shared, calls
        finally:
            threading.setprofile(None)  # type: ignore[arg-type]


NAMES = ("label", "writer", "collection")


def assert_same_calls(
    calls: Calls, foreign: list[Callable[[], httpx2.Response]], absent: list[Callable[[], httpx2.Response]]
) -> None:
    """Check that the two requests of each pair cause the same function calls and get the same status."""
    for number, (one, other) in enumerate(zip(foreign, absent, strict=True)):
        assert one().status_code == other().status_code, number
        counts = calls.of(one), calls.of(other)
        assert counts[0] == counts[1], (number, counts[0] - counts[1], counts[1] - counts[0])
        assert sum(counts[0].values()) > 10, "the calls in the server's threads should be counted"


@pytest.mark.parametrize("name", NAMES)
def test_foreign_targets_are_refused_by_the_same_calls_as_absent_ones(
    watched: tuple[SharedServer, Calls], name: str
) -> None:
    shared, calls = watched
    holder = shared.holders[name]
    source = holder.hidden[0][1]
    foreign = requests_to_refuse(shared, holder, hidden_collection(holder), source)
    absent = requests_to_refuse(shared, holder, "zz9zz", f"{source.partition('/')[0]}/nix")
    assert_same_calls(calls, foreign, absent)


def by_mcp(shared: SharedServer, holder: Holder, method: str, **parameters: Any) -> Callable[[], httpx2.Response]:
    """An MCP request that must be refused."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}
    accepted = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}

    def ask() -> httpx2.Response:
        response = shared.running.post("/mcp", json=body, headers={**holder.headers, **accepted})
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
        *(by_mcp(shared, holder, "tools/call", name=tool, arguments=arguments) for tool, arguments in tools),
        *(by_mcp(shared, holder, "resources/read", uri=uri) for uri in places),
    ]


@pytest.mark.parametrize("name", NAMES)
def test_mcp_and_the_graph_refuse_foreign_targets_by_the_same_calls(
    watched: tuple[SharedServer, Calls], name: str
) -> None:
    shared, calls = watched
    holder = shared.holders[name]
    where, source = holder.hidden[0]
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
def test_readers_of_other_keys_are_looked_up_by_the_same_calls_as_unknown_ones(
    watched: tuple[SharedServer, Calls], name: str
) -> None:
    """A key that may not see a reader's feedback gets an empty list; two other keys have left feedback under the name of the existing reader."""
    shared, calls = watched
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


def test_opening_a_resource_before_refusing_it_is_detected(
    watched: tuple[SharedServer, Calls], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks the tests above, with a server that opens an existing collection before it refuses."""
    shared, calls = watched
    holder = shared.holders["collection"]
    resolve_name = collections.Collections.resolve_name

    def opening_first(
        self: collections.Collections, access: object, name: str | None, field: str = "collection"
    ) -> str:
        if name in self.live:
            self.live[name].current.metadata("sea/ada")
        return resolve_name(self, access, name, field)  # type: ignore[arg-type]

    monkeypatch.setattr(collections.Collections, "resolve_name", opening_first)
    foreign, absent = (requests_to_refuse(shared, holder, name, "sea/ada")[0] for name in ("isles", "zz9zz"))
    foreign(), absent()
    assert calls.of(foreign) != calls.of(absent)
    assert sys.getprofile() is None
