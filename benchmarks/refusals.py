"""Whether the time of a refusal tells that what it names is there: a foreign collection or document against ones that do not exist.

Run: python -P benchmarks/refusals.py [--requests 3000] [--seed 0] [--json]. The requests of a round go in drawn order over one connection.
"rest" is what two absent names differ by: the error of the measurement.
"""

import argparse
import asyncio
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import httpx2

from benchmarks.report import print_report
from benchmarks.serve import answering, begin, made_index
from serve.engines.vllm import free_port
from serve.http.guard.key_file import change_keys, make_key

NAMES = {"foreign": "secret", "absent": "zzzzzz", "other": "yyyyyy"}
"""Collections: one that is there and not for the key, two that are not there."""
SOURCES = {"foreign": "ferry-lantern.md", "absent": "ferry-lanterx.md", "other": "ferry-lantery.md"}
"""Documents of the key's own collection, in the same way."""


@dataclass(frozen=True)
class Request:
    """A request with a place for the name, and who asks."""

    key: str
    method: str
    path: str
    names: dict[str, str]
    body: dict[str, str] | None = None


REQUESTS = {
    "retrieve": Request("collection", "POST", "/v1/retrieve?collection={}", NAMES, {"query": "Who?"}),
    "documents of a collection": Request("collection", "GET", "/v1/documents?collection={}", NAMES),
    "vector store": Request("collection", "GET", "/v1/vector_stores/{}", NAMES),
    "document": Request("label", "GET", "/v1/documents/{}", SOURCES),
    "neighbourhood": Request("label", "GET", "/v1/graph/neighbourhood?kind=document&id={}", SOURCES),
}


def main() -> int:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="modegraph-bench-") as scratch:
        figures = measure(Path(scratch), options.requests, Random(options.seed))
    return print_report("refusals", {"requests of a kind": options.requests, **figures}, [], options.json)


def measure(scratch: Path, requests: int, chance: Random) -> dict[str, float | str]:
    """For each request the median of the absent one in microseconds, and by how much those of the others differ from it."""
    made_index(scratch / "public")
    shutil.copytree(scratch / "public", scratch / "secret")
    made = {
        "collection": make_key("collection", scopes=("read",), collections=("public",)),
        "label": make_key("label", scopes=("read",), collections=("public",), where=("source=corrow*",)),
    }
    change_keys(scratch / "keys.json", lambda keys: [key for key, _ in made.values()])
    url = f"http://127.0.0.1:{free_port()}"
    command = ["-m", "modegraph", "serve", str(scratch / "public"), str(scratch / "secret")]
    command += ["--keys", str(scratch / "keys.json"), "--port", url.rpartition(":")[2]]
    process = begin(command, "none")
    try:
        asyncio.run(answering(f"{url}/health", process))
        figures: dict[str, float | str] = {}
        with httpx2.Client(base_url=url, trust_env=False, timeout=60) as client:
            for name, request in REQUESTS.items():
                medians = median_us(client, request, made[request.key][1], requests, chance)
                figures[f"{name}, absent, µs"] = medians["absent"]
                figures[f"{name}, foreign less absent, µs"] = medians["foreign"] - medians["absent"]
                figures[f"{name}, rest, µs"] = medians["other"] - medians["absent"]
    finally:
        process.terminate()
        process.wait()
    return figures


def median_us(client: httpx2.Client, request: Request, key: str, count: int, chance: Random) -> dict[str, float]:
    """The median microseconds of a refusal, by the kind of name in it."""
    headers = {"Authorization": f"Bearer {key}"}
    taken_us: dict[str, list[float]] = {kind: [] for kind in request.names}
    for number in range(count + 20):
        for kind in chance.sample(list(request.names), len(request.names)):
            path = request.path.format(request.names[kind])
            started = time.perf_counter()
            told = client.request(request.method, path, json=request.body, headers=headers)
            passed_us = 1e6 * (time.perf_counter() - started)
            assert told.status_code == 404, told.text
            if number >= 20:
                taken_us[kind].append(passed_us)
    return {kind: median(each) for kind, each in taken_us.items()}


if __name__ == "__main__":
    raise SystemExit(main())
