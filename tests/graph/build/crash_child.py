"""Forks indexers for tests to kill: loads everything once, then forks one indexer for every line on standard input.

A line is JSON: {"folder", "url", "event": "" | "commit" | "before commit" | "stored call", "nth", "kill_after_s"}. The indexer
kills itself (SIGKILL) at the nth such event, or is killed after `kill_after_s` seconds. A "commit" ends a
transaction of the store or the storing of a batch of encoded vectors; a "stored call" is a model call stored in the ledger.
The indexer's wait status (os.waitpid) is printed when it has exited.
"""

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import graph.build.derive  # loaded before the fork
import graph.extract.llm
from graph.build.build import build_index
from graph.store.embedding_cache import PendingVectors
from graph.store.index_settings import IndexSettings
from graph.store.rows import Store
from graph.types import Document
from modegraph.cli import open_model
from serve.engines import openai_api  # noqa: F401
from serve.ledger import Ledger
from tests.fakes import HashEncoder

DOCUMENTS = [
    Document(f"d{n:02}", f"Ship {n}", f"Ship {n} was built in {1800 + n}. It sailed to Tarn at 10:{n:02}.")
    for n in range(11)
]
WAVE_CALLS = 3


def build(folder: Path, url: str) -> None:
    graph.extract.llm.WAVE_CALLS = WAVE_CALLS
    settings = IndexSettings(
        extractor="llm", extractor_model=f"openai:m@{url}", max_passage_tokens=30, max_chunk_tokens=60
    )
    build_index(folder, DOCUMENTS, settings, lambda spec: HashEncoder(), open_model)


def kill_at(event: str, nth: int) -> None:
    """Make this process kill itself at the nth `event` from now on."""
    left = nth

    def record(name: str) -> None:
        nonlocal left
        left -= name == event
        if name == event and left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    transaction, put, store = Store.transaction, PendingVectors.put, Ledger._store

    @contextmanager
    def transaction_with_events(self: Store) -> Iterator[None]:
        with transaction(self):
            yield
            record("before commit")
        record("commit")

    def store_with_event(self: Ledger, *arguments: Any) -> Any:
        stored = store(self, *arguments)
        record("stored call")
        return stored

    def put_with_event(self: PendingVectors, *arguments: Any) -> None:
        put(self, *arguments)
        record("commit")

    Store.transaction = transaction_with_events  # type: ignore[method-assign]
    PendingVectors.put = put_with_event  # type: ignore[method-assign]
    Ledger._store = store_with_event  # type: ignore[method-assign]


def main() -> None:
    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if child == 0:
            try:
                kill_at(job["event"], job["nth"])
                build(Path(job["folder"]), job["url"])
                os._exit(0)
            finally:
                traceback.print_exc()
                os._exit(3)
        if job["kill_after_s"] is not None:
            time.sleep(job["kill_after_s"])
            os.kill(child, signal.SIGKILL)
        print(os.waitpid(child, 0)[1], flush=True)


if __name__ == "__main__":
    main()
