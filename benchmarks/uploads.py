"""The cost of hostile files: 300 HTML and PDF files of up to 1 MiB, read as `modegraph index` reads them, and uploaded to a server that also answers
chat requests.

Run: python -P benchmarks/uploads.py [--files 300] [--seed 0] [--json]. Each upload includes a second, unreadable file, so that
the server reads the first one but refuses the upload and indexes nothing. benchmarks/hostile_files.py lists the kinds of file.
"""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import httpx2

from benchmarks.hostile_files import hostile_file
from benchmarks.report import Check, at_least, new_parser, print_report
from benchmarks.serve import run_modegraph, running, serving
from graph.documents.parse.formats import Limits
from graph.documents.read import read_bytes
from graph.documents.sandbox import ParseWorker
from graph.errors import UserError
from serve.engines.child import free_port

CONCURRENT_UPLOADS, CHAT_PAUSE_S = 4, 0.2
UNREADABLE = ("unreadable.txt", b"\xff")
MAX_S, MAX_MB = 5.0, 512


@dataclass(frozen=True)
class ReadResult:
    """The result for one file: the reason for its refusal ("" if it was read), wall-clock seconds and, if not uploaded, processor seconds and peak MiB."""

    name: str
    refused: str
    wall_s: float
    cpu_s: float = 0.0
    peak_mb: float = 0.0


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--files", type=at_least(1), default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    numbers = range(options.files)
    indexed = read_as_index(numbers, options.seed)
    with TemporaryDirectory(prefix="modegraph-bench-") as scratch:
        uploaded, chats = asyncio.run(upload_all(numbers, options.seed, Path(scratch)))
    slowest_chat_s = max(chats, default=0.0)
    slowest, largest = max(indexed, key=lambda read: read.cpu_s), max(indexed, key=lambda read: read.peak_mb)
    differing = [
        f"{by_index.name}: {by_index.refused or 'read'} / {by_upload.refused or 'read'}"
        for by_index, by_upload in zip(indexed, uploaded, strict=True)
        if bool(by_index.refused) != bool(by_upload.refused)
    ]
    figures: dict[str, float | str] = {
        "files": options.files,
        "files that `modegraph index` can read": sum(not read.refused for read in indexed),
        "files that the server can read": sum(not read.refused for read in uploaded),
        "HTML files that `modegraph index` refuses": sum(
            bool(read.refused) and read.name.endswith(".html") for read in indexed
        ),
        "file with the longest processor time": f"{slowest.name}, {slowest.cpu_s:.2f} s of processor time, {slowest.wall_s:.2f} s elapsed",
        "file with the most memory": f"{largest.name}, {largest.peak_mb:.0f} MiB",
        "longest elapsed time for one file, `modegraph index`, s": max(read.wall_s for read in indexed),
        "longest elapsed time for one upload, including waiting, s": max(read.wall_s for read in uploaded),
        "files that only one of the two can read (`modegraph index` / server)": "; ".join(differing) or "none",
        "chats during the uploads": len(chats),
        "slowest chat, s": slowest_chat_s,
    }
    figures |= {
        f"refused: {reason}": count
        for reason, count in Counter(refusal_kind(read) for read in indexed if read.refused).items()
    }
    checks = [
        Check("longest processor time, s", slowest.cpu_s, MAX_S, at_least=False),
        Check("most memory, MiB", largest.peak_mb, MAX_MB, at_least=False),
        Check("chats during the uploads", len(chats), 1, at_least=True),
        Check("slowest chat, s", slowest_chat_s, MAX_S, at_least=False),
    ]
    return print_report("uploads", figures, checks, options.json)


def read_as_index(numbers: Sequence[int], seed: int) -> list[ReadResult]:
    """Read every file as `modegraph index` does."""
    results = []
    with ParseWorker(Limits()) as worker:
        for number in numbers:
            name, data = hostile_file(number, seed)
            started, refused = time.perf_counter(), ""
            try:
                read_bytes(data, name, name, worker)
            except UserError as problem:
                refused = str(problem)
            wall_s = time.perf_counter() - started
            results.append(ReadResult(name, refused, wall_s, worker.last.cpu_s, worker.last.peak_mb))
    return results


async def upload_all(numbers: Sequence[int], seed: int, scratch: Path) -> tuple[list[ReadResult], list[float]]:
    """Upload every file, CONCURRENT_UPLOADS at a time, while chat requests run; return the result of each file and the seconds of each chat request."""
    (scratch / "one.md").write_text("# Tides\n\nHigh tide is at noon.", encoding="utf-8")
    run_modegraph("index", scratch / "one.md", "--out", scratch / "index")
    port = free_port()
    model = f"openai:stub@http://127.0.0.1:{port}/v1"
    with (
        running([str(ROOT / "benchmarks" / "stub_engine.py"), str(port)]),
        serving(scratch / "index", "--writable", "--model", model) as (address, _),
    ):
        async with httpx2.AsyncClient(timeout=300, trust_env=False) as client:
            slots, chats = asyncio.Semaphore(CONCURRENT_UPLOADS), list[float]()
            async with asyncio.TaskGroup() as group:
                chatting = group.create_task(chat(client, address, chats))
                uploads = [upload(client, address, number, seed, slots) for number in numbers]
                results = await asyncio.gather(*uploads)
                chatting.cancel()
            return results, chats


async def upload(
    client: httpx2.AsyncClient, address: str, number: int, seed: int, slots: asyncio.Semaphore
) -> ReadResult:
    """Upload one file with UNREADABLE; RuntimeError unless the response has status 400 and names one of these two files."""
    async with slots:
        name, data = await asyncio.to_thread(hostile_file, number, seed)
        started = time.perf_counter()
        response = await client.post(
            f"{address}/v1/documents/files", files=[("files", (name, data)), ("files", UNREADABLE)]
        )
        wall_s = time.perf_counter() - started
        message = str(response.json()["error"]["message"])
        if response.status_code != 400 or not message.startswith((name, UNREADABLE[0])):
            raise RuntimeError(
                f"{name}: status {response.status_code}, {message}; expected status 400 about one of the two files"
            )
        refused = message.startswith(name) and response.json()["error"]["code"] != "empty_document"
        return ReadResult(name, message if refused else "", wall_s)


async def chat(client: httpx2.AsyncClient, address: str, seconds: list[float]) -> None:
    """Send chat requests until cancelled, and append the seconds of each to `seconds`."""
    question = {"role": "user", "content": "When is high tide?"}
    while True:
        started = time.perf_counter()
        body = {"model": "stub", "messages": [question], "max_tokens": 4}
        (await client.post(f"{address}/v1/chat/completions", json=body)).raise_for_status()
        seconds.append(time.perf_counter() - started)
        await asyncio.sleep(CHAT_PAUSE_S)


def refusal_kind(read: ReadResult) -> str:
    """The reason for a refusal, without the file's name and with # for every digit."""
    reason = read.refused.removeprefix(f"{read.name}: ").partition(";")[0]
    return "".join("#" if character.isdigit() else character for character in reason)


if __name__ == "__main__":
    sys.exit(main())
