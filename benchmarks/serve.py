"""The cost of retrieval in a server: milliseconds to the first token and throughput, against the bare engine with the same prompts.

Run: python -P benchmarks/serve.py [--index FOLDER --questions FILE.jsonl] [--model FOLDER] [--soak-s 600] [--json].
Without --index a small index of examples/ is built. The engine is vLLM on the Python that MODEGRAPH_VLLM_PYTHON names, with a tiny model
trained for the purpose unless --model names another; without vLLM, a stub that sends a token every STUB_TOKEN_S seconds. With --soak-s,
another server is put under load for that long, while documents are added to its copy of the index.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import httpx2

from benchmarks.report import Check, new_parser, print_report
from benchmarks.stub_engine import STUB_TOKEN_S
from graph.answer.context import build_context
from graph.answer.prompt import answer_messages
from graph.documents.questions import read_questions
from graph.index.index import open_index
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.retrieve import retrieve
from serve.engines.child import SupervisedServer, free_port
from serve.engines.vllm import read_spec

PYTHON = os.environ.get("MODEGRAPH_VLLM_PYTHON", "")
CONCURRENT, K, ANSWER_TOKENS, ROUNDS = 8, 5, 16, 3
MAX_ADDED_MS, MIN_SHARE, MAX_GROWTH = 30, 0.95, 1.1
START_S = 600
RETRIEVAL = "modegraph_retrieval_seconds"
PAUSE_S = 1.5
"""Pause before requests whose first token is timed, so that the engine is idle: vLLM's worker polls for more work for a second, on a
core that the next request would need."""
BASELINE_AFTER = 0.2
"""The share of a soak after which the first measurement of memory is the baseline of its growth, because caches are full by then."""


@dataclass(frozen=True)
class Engine:
    """A server of chat completions: its name, address and key, and the model to request."""

    name: str
    url: str
    key: str
    model: str


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--index", type=Path)
    parser.add_argument("--questions", type=Path, default=ROOT / "examples" / "questions.jsonl")
    parser.add_argument("--model", type=Path, help="folder of a model for vLLM; by default a tiny one is trained")
    parser.add_argument("--queries", type=int, default=64)
    parser.add_argument("--soak-s", type=float, default=0)
    options = parser.parse_args()
    with TemporaryDirectory(prefix="modegraph-bench-") as scratch:
        index = options.index or example_index(Path(scratch) / "index")
        figures, checks = asyncio.run(measure(index, options, Path(scratch)))
    return print_report("serve", figures, checks, options.json)


async def measure(index: Path, options: Any, scratch: Path) -> tuple[dict[str, float | str], list[Check]]:
    """The figures and the checks of this benchmark."""
    texts = [question.text for question in read_questions(options.questions)][: options.queries]
    prompts = prompts_of(index, texts)
    async with engine(options.model, scratch) as bare, server(index, bare) as (ours, _):
        figures: dict[str, float | str] = {
            "engine": bare.name,
            "passages": len(open_index(index).data.passage_ids),
            "queries": len(texts),
        }
        bare_bodies = [{"messages": prompt} for prompt in prompts]
        our_bodies = [{"messages": [{"role": "user", "content": text}]} for text in texts]
        await run_all(bare, bare_bodies[:CONCURRENT])
        # The order alternates from pair to pair, so that caches favour neither.
        pairs = [
            await first_tokens_s(bare, bare_body, ours, our_body, ours_first=bool(number % 2))
            for number, (bare_body, our_body) in enumerate(zip(bare_bodies, our_bodies, strict=True))
        ]
        added_ms = 1000 * median(with_retrieval - without for without, with_retrieval in pairs)
        figures["first token, bare, ms"] = 1000 * median(pair[0] for pair in pairs)
        figures["first token, with retrieval, ms"] = 1000 * median(pair[1] for pair in pairs)
        figures["retrieval itself, mean, ms"] = (
            1000 * metric(ours, f"{RETRIEVAL}_sum") / metric(ours, f"{RETRIEVAL}_count")
        )
        rates = [
            (await run_all(bare, bare_bodies), await run_all(ours, varied(our_bodies, turn))) for turn in range(ROUNDS)
        ]
        figures["answers per second, bare"] = median(rate[0] for rate in rates)
        figures["answers per second, with retrieval"] = median(rate[1] for rate in rates)
        share = median(our_rate / bare_rate for bare_rate, our_rate in rates)
        checks = [
            Check("first token: added by retrieval, ms", added_ms, MAX_ADDED_MS, at_least=False),
            Check("throughput: share of the bare engine's", share, MIN_SHARE, at_least=True),
        ]
        if options.soak_s:
            soak_figures, soak_checks = await soak(index, bare, our_bodies, options.soak_s, scratch)
            figures, checks = {**figures, **soak_figures}, [*checks, *soak_checks]
    return figures, checks


async def soak(
    index: Path, bare: Engine, bodies: Sequence[dict[str, Any]], seconds: float, scratch: Path
) -> tuple[dict[str, float | str], list[Check]]:
    """Put a server of a copy of the index under load for `seconds`, while four documents are added to it."""
    copied = scratch / "soaked"
    shutil.copytree(index, copied)
    async with server(copied, bare) as (ours, process):
        end, requests, sizes = time.monotonic() + seconds, 0, []
        failed: Counter[str] = Counter()

        async def load(number: int) -> None:
            nonlocal requests
            async with client_of(ours) as client:
                while time.monotonic() < end:
                    body = varied(bodies, requests)[(number + requests) % len(bodies)]
                    response = await client.post(
                        f"{ours.url}/chat/completions", json=request_body(ours, body, stream=False)
                    )
                    if response.status_code not in (200, 429):
                        failed[f"{response.status_code}: {response.json()['error']['message']}"] += 1
                    requests += 1

        async def watch() -> None:
            for turn in range(20):
                await asyncio.sleep(max(0.0, end - time.monotonic()) / (20 - turn))
                sizes.append(resident_mib(process))
                if turn % 5 == 2:
                    await asyncio.to_thread(add_document, copied, turn, scratch)

        await asyncio.gather(watch(), *(load(number) for number in range(CONCURRENT)))
        swaps = metric(ours, 'modegraph_index_swaps_total{outcome="done"}')
    baseline = sizes[int(BASELINE_AFTER * len(sizes))]
    figures: dict[str, float | str] = {"soak: requests": requests, "soak: index swaps": swaps}
    figures |= {"soak: memory at first, MiB": baseline, "soak: memory at the end, MiB": sizes[-1]}
    figures |= {f"soak: {problem}": count for problem, count in failed.items()}
    return figures, [
        Check("soak: failed requests", failed.total(), 0, at_least=False),
        Check("soak: memory at the end relative to that at first", sizes[-1] / baseline, MAX_GROWTH, at_least=False),
        Check("soak: index swaps", swaps, 3, at_least=True),
    ]


def prompts_of(index: Path, questions: Sequence[str]) -> list[list[dict[str, str]]]:
    """The messages that the server sends to the model for each question if `auto` chooses `hops` (for a broad question, `auto` chooses `hierarchy`)."""
    opened, settings = open_index(index), RetrieveSettings.model_validate({"mode": "hops", "top_k": K})
    contexts = [build_context(retrieve(opened, question, settings), K) for question in questions]
    return [
        [{"role": turn.role, "content": turn.content} for turn in answer_messages(question, excerpts)]
        for question, excerpts in zip(questions, contexts, strict=True)
    ]


def varied(bodies: Sequence[dict[str, Any]], turn: int) -> list[dict[str, Any]]:
    """The same questions, each with an ending that the server has not cached in an earlier turn."""
    return [
        {"messages": [{"role": "user", "content": b["messages"][0]["content"] + " ?" * (turn + 1)}]} for b in bodies
    ]


def request_body(target: Engine, body: dict[str, Any], stream: bool) -> dict[str, Any]:
    """A request of the benchmark: greedy, and always the same number of tokens unless the body sets another number."""
    fields = {"temperature": 0, "max_tokens": ANSWER_TOKENS, "ignore_eos": True, "stream": stream}
    return {"model": target.model, **fields, **body}


def metric(ours: Engine, name: str) -> float:
    """The sum of the server's metrics whose lines start with `name`."""
    lines = httpx2.get(ours.url.replace("/v1", "/metrics"), trust_env=False).text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


def client_of(target: Engine) -> httpx2.AsyncClient:
    """A client with persistent connections."""
    return httpx2.AsyncClient(headers={"Authorization": f"Bearer {target.key}"}, timeout=120, trust_env=False)


async def first_tokens_s(
    bare: Engine, bare_body: dict[str, Any], ours: Engine, our_body: dict[str, Any], ours_first: bool
) -> tuple[float, float]:
    """`first_token_s` of the bare engine and of modegraph's server, `ours`, which is measured first if `ours_first`."""
    if ours_first:
        with_retrieval = await first_token_s(ours, our_body)
        return await first_token_s(bare, bare_body), with_retrieval
    return await first_token_s(bare, bare_body), await first_token_s(ours, our_body)


async def first_token_s(target: Engine, body: dict[str, Any]) -> float:
    """Seconds from a streamed request to its first text, over an open connection; the stream is read to the end."""
    waited = None
    async with client_of(target) as client:
        await client.get(f"{target.url}/models")
        await asyncio.sleep(PAUSE_S)
        started = time.perf_counter()
        async with client.stream(
            "POST", f"{target.url}/chat/completions", json=request_body(target, body, stream=True)
        ) as response:
            async for line in response.aiter_lines():
                if waited is None and line.startswith("data: {") and has_text(json.loads(line[6:])):
                    waited = time.perf_counter() - started
    if waited is None:
        raise RuntimeError(
            f"{target.name}: a stream without text (status {response.status_code}); expected status 200 and text; check the engine"
        )
    return waited


def has_text(chunk: dict[str, Any]) -> bool:
    """Whether a chunk of a stream contains text."""
    deltas = [choice.get("delta") or {} for choice in chunk["choices"]]
    return any(delta.get("content") or delta.get("reasoning_content") for delta in deltas)


async def run_all(target: Engine, bodies: Sequence[dict[str, Any]]) -> float:
    """Answers per second, with CONCURRENT requests in flight."""
    waiting = list(bodies)
    async with client_of(target) as client:

        async def work() -> None:
            while waiting:
                response = await client.post(
                    f"{target.url}/chat/completions", json=request_body(target, waiting.pop(), stream=False)
                )
                response.raise_for_status()

        started = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(CONCURRENT)))
        return len(bodies) / (time.perf_counter() - started)


@asynccontextmanager
async def engine(model: Path | None, scratch: Path) -> AsyncIterator[Engine]:
    """Start vLLM if MODEGRAPH_VLLM_PYTHON names its Python, else the stub; yield the engine once it is ready."""
    if PYTHON:
        folder = model or tiny_model(scratch / "tiny")
        extra = ("--enforce-eager", "--no-enable-prefix-caching", f"--max-num-seqs={CONCURRENT}")
        child = SupervisedServer(read_spec(str(folder), {}, PYTHON, extra))
        await child.start()
        try:
            await asyncio.wait_for(child.ready.wait(), START_S)
            yield Engine("vllm", child.url, child.key, child.spec.name)
        finally:
            await child.stop()
        return
    port = free_port()
    url = f"http://127.0.0.1:{port}/v1"
    with running([str(ROOT / "benchmarks" / "stub_engine.py"), str(port)], ready=f"{url}/models"):
        yield Engine(f"stub, a token every {1000 * STUB_TOKEN_S:g} ms", url, "none", "stub")


@asynccontextmanager
async def server(index: Path, bare: Engine) -> AsyncIterator[tuple[Engine, "subprocess.Popen[bytes]"]]:
    """`modegraph serve` with the engine, in a separate process."""
    limits = ("--capacity", CONCURRENT, "--queue", CONCURRENT, "--top-k", K)
    with serving(index, "--model", f"openai:{bare.model}@{bare.url}", *limits, key=bare.key) as (url, process):
        yield Engine("modegraph", f"{url}/v1", "none", bare.model), process


@contextmanager
def serving(
    *words: object, key: str = "none", ready: str = "/ready"
) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """Run `modegraph serve` with these arguments on a free port; yield the server's address and process once it is ready."""
    url = f"http://127.0.0.1:{free_port()}"
    command = ["-m", "modegraph", "serve", *map(str, words), "--port", url.rpartition(":")[2]]
    with running(command, key, f"{url}{ready}") as process:
        yield url, process


@contextmanager
def running(words: Sequence[str], key: str = "none", ready: str = "") -> Iterator["subprocess.Popen[bytes]"]:
    """Run one of our scripts or modules as a process, wait until the address `ready` (if given) answers, and end it afterwards.

    The standard error of the process is discarded.
    """
    command = [sys.executable, "-P", *words]
    process = subprocess.Popen(command, env={**os.environ, "OPENAI_API_KEY": key}, stderr=subprocess.DEVNULL)
    try:
        if ready:
            wait_until_ready(ready, process)
        yield process
    finally:
        process.terminate()
        process.wait()


def wait_until_ready(url: str, process: "subprocess.Popen[bytes]") -> None:
    """Wait until `url` answers 200."""
    with httpx2.Client(timeout=5, trust_env=False) as client:
        for _ in range(10 * START_S):
            if process.poll() is not None:
                raise RuntimeError(
                    f"the process that should serve {url} exited with status {process.returncode}; it should keep running; start it by hand to see its error"
                )
            with suppress(httpx2.HTTPError):
                if client.get(url).status_code == 200:
                    return
            time.sleep(0.1)
    raise RuntimeError(f"{url} did not answer with status 200 within {START_S} s; start its process by hand to see why")


def example_index(folder: Path) -> Path:
    """An index of examples/documents."""
    run_modegraph("index", ROOT / "examples" / "documents", "--out", folder)
    return folder


def add_document(index: Path, number: int, scratch: Path) -> None:
    """Add one document in a separate process."""
    file = scratch / f"added-{number}.md"
    file.write_text(f"# Added {number}\n\nDocument {number} was added while the server was running.", encoding="utf-8")
    run_modegraph("index", file, "--out", index)


def run_modegraph(*words: object) -> None:
    """Run a modegraph command, discarding its output."""
    command = [sys.executable, "-P", "-m", "modegraph", *map(str, words)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def tiny_model(folder: Path) -> Path:
    """A tiny Llama; what it writes does not matter here."""
    from train.run.settings import TinySettings
    from train.tiny import train_tiny

    values = {"texts": str(ROOT / "examples" / "documents"), "output": str(folder), "context_tokens": 4096, "steps": 2}
    train_tiny(TinySettings.model_validate(values))
    return folder


def resident_mib(process: "subprocess.Popen[bytes]") -> float:
    """A process's anonymous resident memory in MiB, which excludes the files that it maps."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    (anonymous,) = [line.split()[1] for line in lines if line.startswith("RssAnon:")]
    return int(anonymous) / 1024


if __name__ == "__main__":
    sys.exit(main())
