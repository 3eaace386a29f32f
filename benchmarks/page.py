"""What the page costs a reader: requests and bytes until it stands, again on a second visit, and the time to the first answer.

Run: python -P benchmarks/page.py [--index FOLDER] [--json]. The engine is the stub of benchmarks/stub_engine.py, which sends a token every 20 ms.
Where playwright finds Chromium (MODEGRAPH_CHROMIUM, or on the path) all is measured in it; else requests and bytes alone, by following what the
files load.
"""

import argparse
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

from benchmarks.report import Check, print_report
from benchmarks.serve import engine, made_index, server

CHROMIUM = os.environ.get("MODEGRAPH_CHROMIUM") or shutil.which("chromium") or ""
QUESTION = "What is the combined area of the four inhabited Halmaren islands?"
ASSET = re.compile(r"""(?:src|href)="(page/[^"]+)"|(?:from|import)\s*\(?\s*"(\.{1,2}/[^"]+)\"""")
"""What HTML loads, and what a module imports."""
VISITS = 5
MOST_KIB, MOST_REQUESTS = 400, 40
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
READY = "performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"


def main() -> int:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", type=Path, help="index to serve; one of examples/ is made when left out")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="modegraph-bench-") as scratch:
        index = options.index or made_index(Path(scratch) / "index")
        figures = asyncio.run(measure(index))
    checks = [
        Check("first visit: KiB of files", float(figures["first visit: KiB of files"]), MOST_KIB, at_least=False),
        Check(
            "first visit: requests for files", float(figures["first visit: requests for files"]), MOST_REQUESTS, False
        ),
    ]
    return print_report("page", figures, checks, options.json)


async def measure(index: Path) -> dict[str, float | str]:
    """All figures."""
    async with engine(None, index) as bare, server(index, bare) as (ours, _):
        url = ours.url.removesuffix("/v1")
        figures: dict[str, float | str] = {"engine": bare.name, **(await asyncio.to_thread(files_of, f"{url}/"))}
        if CHROMIUM:
            figures |= await in_chromium(f"{url}/")
    return figures


def files_of(url: str) -> dict[str, float | str]:
    """The page and every file that it loads, by requests and bytes, and what a browser that has them asks for."""
    with httpx2.Client(trust_env=False, timeout=30) as client:
        page = client.get(url)
        found: dict[str, bytes] = {url: page.content}
        waiting = list(assets(url, page.text))
        while waiting:
            address = waiting.pop()
            if address not in found:
                answer = client.get(address)
                answer.raise_for_status()
                found[address] = answer.content
                waiting += assets(address, answer.text)
        again = client.get(url, headers={"If-None-Match": page.headers["etag"]})
        kept = client.get(next(address for address in found if address.endswith(".css"))).headers["cache-control"]
    return {
        "first visit: requests for files": len(found),
        "first visit: KiB of files": sum(map(len, found.values())) / 1024,
        "the same, gzipped (by a proxy)": sum(len(gzip.compress(each)) for each in found.values()) / 1024,
        "largest file": max(found, key=lambda address: len(found[address])).rpartition("/")[2],
        "second visit: status and bytes of the page": f"{again.status_code}, {len(again.content)}; its files: {kept}",
    }


def assets(address: str, text: str) -> Iterator[str]:
    """The addresses of what a file loads."""
    if address.endswith((".js", "/")):
        for from_page, from_module in ASSET.findall(text):
            yield urljoin(address, from_page or from_module)


async def in_chromium(url: str) -> dict[str, float | str]:
    """Medians over visits in browsers that have nothing yet: paint, readiness, the first word of an answer and its end."""
    from playwright.async_api import async_playwright

    visits: list[dict[str, float]] = []
    async with async_playwright() as started:
        browser = await started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        for _ in range(VISITS):
            visits.append(await visit(browser, url))
        version = browser.version
        await browser.close()
    return {"browser": f"Chromium {version}"} | {name: median(each[name] for each in visits) for name in visits[0]}


async def visit(browser: Any, url: str) -> dict[str, float]:
    """One visit, milliseconds: a question is typed and sent as soon as the page takes one."""
    context = await browser.new_context()
    page = await context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    await page.goto(url)
    await page.wait_for_selector("#columns select")
    usable = await page.evaluate("performance.now()")
    loaded = len(asked)
    painted, ready = await page.evaluate(PAINTED), await page.evaluate(READY)
    await page.fill("#question", QUESTION)
    sent = await page.evaluate("performance.now()")
    await page.press("#question", "Enter")
    await page.wait_for_function("() => document.querySelector('.turn')?.innerText.includes('token')", polling=5)
    first = await page.evaluate("performance.now()")
    await page.wait_for_selector(".cost")
    whole = await page.evaluate("performance.now()")
    await context.close()
    return {
        "requests until usable, with those to the API": float(loaded),
        "first contentful paint, ms": painted,
        "DOM content loaded, ms": ready,
        "usable, ms": usable,
        "first word of an answer after Enter, ms": first - sent,
        "whole answer after Enter, ms": whole - sent,
    }


if __name__ == "__main__":
    sys.exit(main())
