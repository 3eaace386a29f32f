"""Does the response time of a refusal reveal that a resource exists? Compares foreign resources, which the key may not read, with absent ones.

Run: python -P benchmarks/refusals.py [--rounds 1000] [--seed 0] [--json]. A round requests a foreign resource and two absent ones in random order
over one connection. For each request, the report gives the time for an absent resource and the median difference within rounds with its 95 %
interval, both in processor time of the server and in wall-clock time (µs). "noise", the difference between the two absent resources, shows the
error of the measurement.
"""

import json
import math
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import httpx2

from benchmarks.report import Check, new_parser, print_report
from benchmarks.serve import example_index, serving
from graph.index.index import open_index
from serve.engines.child import free_port
from serve.http.keys import change_keys, make_key

WARM_ROUNDS = 20
MAX_DIFFERENCE_SHARE = 0.02
"""Largest allowed difference in processor time between the refusals of a foreign and of an absent resource, as a share of the time for the absent one.
The check fails only if every difference in the 95 % interval is larger."""
OTHER_KEY, OTHER_READER = "others", "reader-0001"
MCP = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
COLLECTIONS = {"foreign": "secret", "absent": "zzzzzz", "other": "yyyyyy"}
"""One collection that exists but that the key may not read, and two that do not exist."""
SOURCES = {"foreign": "ferry-lantern.md", "absent": "ferry-lanterx.md", "other": "ferry-lantery.md"}
"""Documents of the collection that the key may read: one that the key's condition hides, and two that do not exist."""
READERS = {"foreign": OTHER_READER, "absent": "reader-0002", "other": "reader-0003"}
"""Names of users: one whose feedback was sent with other keys, and two without feedback."""
READERS_OF_OTHER_KEY = {kind: f"{OTHER_KEY}/{name}" for kind, name in READERS.items()}
"""The same users of another key, as KEY/USER."""


@dataclass(frozen=True)
class Request:
    """A request with {} in place of the resource's name, the name of the key with which it is sent, the names to insert, and the status of the refusal."""

    key: str
    method: str
    path: str
    names: Mapping[str, str]
    body: str = ""
    status: int = 404


def tool(name: str, **arguments: str) -> str:
    """The body of an MCP tool call."""
    return rpc("tools/call", name=name, arguments=arguments)


def rpc(method: str, **parameters: Any) -> str:
    """The body of a JSON-RPC request."""
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters})


def requests_naming(passages: Mapping[str, str]) -> dict[str, Request]:
    """Requests that name a resource, by kind of resource and route; `passages` contains the passage ids to name."""
    query = json.dumps({"query": "Who?"})
    node = "/v1/graph/neighbourhood?id={}&kind="
    chat = json.dumps({"model": "stub@{}", "messages": [{"role": "user", "content": "Who?"}]})
    return {
        "collection, search": Request("collection", "POST", "/v1/retrieve?collection={}", COLLECTIONS, query),
        "collection, documents": Request("collection", "GET", "/v1/documents?collection={}", COLLECTIONS),
        "collection, chat": Request("collection", "POST", "/v1/chat/completions", COLLECTIONS, chat),
        "collection, feedback": Request("collection", "GET", "/v1/feedback/reader-0002?collection={}", COLLECTIONS),
        "collection, MCP": Request(
            "collection", "POST", "/mcp", COLLECTIONS, tool("search", query="Who?", collection="{}"), 200
        ),
        "vector store": Request("collection", "GET", "/v1/vector_stores/{}", COLLECTIONS),
        "vector store, search": Request("collection", "POST", "/v1/vector_stores/{}/search", COLLECTIONS, query),
        "document": Request("label", "GET", "/v1/documents/{}", SOURCES),
        "document, neighbourhood": Request("label", "GET", f"{node}document", SOURCES),
        "document, MCP": Request("label", "POST", "/mcp", SOURCES, tool("fetch", id="{}"), 200),
        "document, MCP resource": Request(
            "label", "POST", "/mcp", SOURCES, rpc("resources/read", uri="modegraph://public/{}"), 200
        ),
        "passage, neighbourhood": Request("label", "GET", f"{node}passage", passages),
        "passage, MCP": Request("label", "POST", "/mcp", passages, tool("fetch", id="{}"), 200),
        "feedback": Request("label", "GET", "/v1/feedback/{}", READERS, status=200),
        "feedback of a key": Request("label", "GET", "/v1/feedback/{}", READERS_OF_OTHER_KEY, status=200),
        "feedback, deleting": Request("label", "DELETE", "/v1/feedback/{}", READERS, status=200),
    }


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with TemporaryDirectory(prefix="modegraph-bench-") as scratch:
        figures, checks = measure(Path(scratch), options.rounds, Random(options.seed))
    return print_report("refusals", {"rounds": options.rounds, **figures}, checks, options.json)


def measure(scratch: Path, rounds: int, rng: Random) -> tuple[dict[str, float | str], list[Check]]:
    """For each request, the time for the absent name, and how much longer the foreign and the other absent name take."""
    example_index(scratch / "public")
    shutil.copytree(scratch / "public", scratch / "secret")
    keys = write_keys(scratch / "keys.json")
    requests = requests_naming(passage_ids_in(scratch / "public", rng))
    figures: dict[str, float | str] = {}
    checks = []
    # No refusal calls the model, so no model server has to run.
    model = f"openai:stub@http://127.0.0.1:{free_port()}/v1"
    arguments = (
        scratch / "public",
        scratch / "secret",
        "--feedback",
        "--model",
        model,
        "--keys",
        scratch / "keys.json",
    )
    with (
        discarding_collector() as collector,
        serving(*arguments, "--otlp-endpoint", collector, ready="/health") as (url, process),
        httpx2.Client(base_url=url, trust_env=False, timeout=60) as client,
    ):
        for key in ("collection", OTHER_KEY):
            send_feedback(client, keys[key])
        for name, request in requests.items():
            times = times_us(client, request, keys[request.key], rounds, rng, lambda: processor_s(process.pid))
            for clock, (absent, foreign, other) in times.items():
                figures[f"{name}, {clock}: absent, µs"] = median(absent)
                figures[f"{name}, {clock}: foreign minus absent, µs"] = with_interval(
                    sorted_differences(foreign, absent)
                )
                figures[f"{name}, {clock}: noise, µs"] = with_interval(sorted_differences(other, absent))
            absent, foreign, _ = times["processor"]
            low, high = interval(sorted_differences(foreign, absent))
            smallest_difference = max(0.0, low, -high) / median(absent)
            checks.append(
                Check(
                    f"{name}: smallest difference in the interval, share of the refusal's time",
                    smallest_difference,
                    MAX_DIFFERENCE_SHARE,
                    at_least=False,
                )
            )
    return figures, checks


def times_us(
    client: httpx2.Client, request: Request, key: str, rounds: int, rng: Random, processor: Callable[[], float]
) -> dict[str, tuple[list[float], list[float], list[float]]]:
    """Microseconds of the server's processor time and of wall-clock time, as lists over rounds for the absent, the foreign and the other absent name."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", **MCP}
    kinds = ("absent", "foreign", "other")
    times: dict[tuple[str, str], list[float]] = {
        (clock, kind): [] for clock in ("processor", "clock") for kind in kinds
    }
    for number in range(rounds + WARM_ROUNDS):
        for kind in rng.sample(kinds, len(kinds)):
            name = request.names[kind]
            path, body = request.path.replace("{}", name), request.body.replace("{}", name)
            start = processor(), time.perf_counter()
            response = client.request(request.method, path, content=body, headers=headers)
            end = processor(), time.perf_counter()
            assert response.status_code == request.status, (
                f"{request.method} {path}: status {response.status_code}; expected {request.status}: {response.text}"
            )
            if number >= WARM_ROUNDS:
                for clock, before, after in zip(("processor", "clock"), start, end, strict=True):
                    times[clock, kind].append(1e6 * (after - before))
    return {clock: tuple(times[clock, kind] for kind in kinds) for clock in ("processor", "clock")}  # type: ignore[misc]


def processor_s(pid: int) -> float:
    """The processor time of a process so far; Linux derives a clock's id from the process id."""
    return time.clock_gettime((~pid << 3) | 2)


def sorted_differences(ones: Sequence[float], others: Sequence[float]) -> list[float]:
    """The differences within rounds, sorted."""
    return sorted(one - other for one, other in zip(ones, others, strict=True))


def with_interval(differences: Sequence[float]) -> str:
    """The median of sorted differences and its 95 % interval, as text."""
    low, high = interval(differences)
    return f"{median(differences):.1f} ({low:.1f} to {high:.1f})"


def interval(sorted_values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the median of sorted values: the values at the two ranks around n / 2 between which a binomial (n, ½) variable lies with
    probability .95.

    >>> interval([float(n) for n in range(1, 101)])
    (40.0, 61.0)
    """
    rank = max(1, math.floor(len(sorted_values) / 2 - 0.98 * math.sqrt(len(sorted_values))))
    return sorted_values[rank - 1], sorted_values[-rank]


def write_keys(file: Path) -> dict[str, str]:
    """Write a key for the collection `public`, and two keys for some of its documents only; return each key's text by name."""
    rights = {"collection": (), "label": ("source=corrow*",), OTHER_KEY: ("source=ferry*",)}
    keys_by_name = {
        name: make_key(name, scopes=("read",), collections=("public",), where=where) for name, where in rights.items()
    }
    change_keys(file, lambda keys: [key for key, _ in keys_by_name.values()])
    return {name: text for name, (_, text) in keys_by_name.items()}


def passage_ids_in(folder: Path, rng: Random) -> dict[str, str]:
    """The id of a passage that is hidden from the key `label`, and two ids that no passage has."""
    foreign = open_index(folder).passages_of(SOURCES["foreign"])[0].id
    absent, other = ("".join(rng.choices("0123456789abcdef", k=len(foreign))) for _ in range(2))
    return {"foreign": foreign, "absent": absent, "other": other}


def send_feedback(client: httpx2.Client, key: str) -> None:
    """Send feedback of the user OTHER_READER with `key`."""
    vote = {"kind": "vote", "user": OTHER_READER, "consent": True, "question": "Who?", "rating": "up"}
    vote["answer"] = {"model": "stub", "text": "so"}
    client.post("/v1/feedback", json=vote, headers={"Authorization": f"Bearer {key}"}).raise_for_status()


@contextmanager
def discarding_collector() -> Iterator[str]:
    """Run an OpenTelemetry collector that discards all spans; yield its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


if __name__ == "__main__":
    raise SystemExit(main())
