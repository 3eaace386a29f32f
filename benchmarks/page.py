"""The cost of loading the page of `modegraph serve`: requests and bytes until it is usable, what a second visit loads, and the time to the first answer.

Run: python -P benchmarks/page.py [--index FOLDER] [--json]. The engine is the stub of benchmarks/stub_engine.py, which sends a token every 20 ms
(leave MODEGRAPH_VLLM_PYTHON unset). Requests and bytes are counted by following the files' references; times are measured with Playwright in
Chromium, if Chromium is found (at MODEGRAPH_CHROMIUM or on PATH).
"""

import asyncio
import gzip
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urljoin

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import httpx2

from benchmarks.report import Check, new_parser, print_report
from benchmarks.serve import engine, example_index, server

CHROMIUM = os.environ.get("MODEGRAPH_CHROMIUM") or shutil.which("chromium") or ""
QUESTION = "What is the combined area of the four inhabited Halmaren islands?"
ASSET = re.compile(r"""(?:src|href)="(page/[^"]+)"|(?:from|import)\s*\(?\s*"(\.{1,2}/[^"]+)\"""")
"""File references in HTML, and imports in JavaScript modules."""
VISITS = 5
MAX_KIB, MAX_REQUESTS = 400, 40
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
READY = "performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--index", type=Path, help="index to serve; by default, one is made from examples/")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="modegraph-bench-") as scratch:
        index = options.index or example_index(Path(scratch) / "index")
        figures = asyncio.run(measure(index, Path(scratch)))
    checks = [
        Check("first visit: KiB of files", float(figures["first visit: KiB of files"]), MAX_KIB, at_least=False),
        Check(
            "first visit: requests for files", float(figures["first visit: requests for files"]), MAX_REQUESTS, False
        ),
    ]
    return print_report("page", figures, checks, options.json)


async def measure(index: Path, scratch: Path) -> dict[str, float | str]:
    """All figures."""
    async with engine(None, scratch) as bare, server(index, bare) as (ours, _):
        url = ours.url.removesuffix("/v1")
        figures: dict[str, float | str] = {"engine": bare.name, **(await asyncio.to_thread(files_of, f"{url}/"))}
        if CHROMIUM:
            figures |= await in_chromium(f"{url}/")
    return figures


def files_of(url: str) -> dict[str, float | str]:
    """The requests and bytes of the page and of every file that it loads, and what a second visit gets: the page's status
    and bytes, and the Cache-Control header of the files.
    """
    with httpx2.Client(trust_env=False, timeout=30) as client:
        page = client.get(url)
        contents: dict[str, bytes] = {url: page.content}
        waiting = list(assets(url, page.text))
        while waiting:
            address = waiting.pop()
            if address not in contents:
                response = client.get(address)
                response.raise_for_status()
                contents[address] = response.content
                waiting += assets(address, response.text)
        again = client.get(url, headers={"If-None-Match": page.headers["etag"]})
        cache_control = client.get(next(address for address in contents if address.endswith(".css"))).headers[
            "cache-control"
        ]
    return {
        "first visit: requests for files": len(contents),
        "first visit: KiB of files": sum(map(len, contents.values())) / 1024,
        "first visit: KiB of files, gzipped (by a proxy)": sum(
            len(gzip.compress(content)) for content in contents.values()
        )
        / 1024,
        "largest file": max(contents, key=lambda address: len(contents[address])).rpartition("/")[2],
        "second visit: status and bytes of the page": f"{again.status_code}, {len(again.content)}; its files: {cache_control}",
    }


def assets(address: str, text: str) -> Iterator[str]:
    """The addresses of the files that a page or a JavaScript module loads; none for any other file."""
    if address.endswith((".js", "/")):
        for from_page, from_module in ASSET.findall(text):
            yield urljoin(address, from_page or from_module)


async def in_chromium(url: str) -> dict[str, float | str]:
    """Medians over VISITS visits, each with an empty cache: the figures of `visit`, and the browser's version."""
    from playwright.async_api import async_playwright

    visits: list[dict[str, float]] = []
    async with async_playwright() as started:
        browser = await started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        for _ in range(VISITS):
            visits.append(await visit(browser, url))
        version = browser.version
        await browser.close()
    return {"browser": f"Chromium {version}"} | {
        name: median(timings[name] for timings in visits) for name in visits[0]
    }


async def visit(browser: Any, url: str) -> dict[str, float]:
    """The number of requests and the times (in milliseconds) of one visit: a question is typed and sent as soon as the page accepts one."""
    context = await browser.new_context()
    page = await context.new_page()
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    await page.goto(url)
    await page.wait_for_selector("#columns select")
    usable = await page.evaluate("performance.now()")
    loaded = len(requests)
    painted, ready = await page.evaluate(PAINTED), await page.evaluate(READY)
    await page.fill("#question", QUESTION)
    sent = await page.evaluate("performance.now()")
    await page.press("#question", "Enter")
    await page.wait_for_function("() => document.querySelector('.turn')?.innerText.includes('token')", polling=5)
    first = await page.evaluate("performance.now()")
    await page.wait_for_selector(".cost")
    finished = await page.evaluate("performance.now()")
    await context.close()
    return {
        "requests until usable, with those to the API": float(loaded),
        "first contentful paint, ms": painted,
        "DOM content loaded, ms": ready,
        "usable, ms": usable,
        "first word of an answer after Enter, ms": first - sent,
        "whole answer after Enter, ms": finished - sent,
    }


if __name__ == "__main__":
    sys.exit(main())
