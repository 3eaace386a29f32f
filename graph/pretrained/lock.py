"""One process at a time fetches models into the cache; a lock goes with its process, however that ends."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

FILE = "fetching.lock"


@contextmanager
def fetching(cache: Path, note: Callable[[str], None]) -> Iterator[None]:
    """Alone with the folder `cache`, which is made if need be; a note says so where another process must be waited for."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / FILE).open("a", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            note("another process is fetching a model; waiting until it is done")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
