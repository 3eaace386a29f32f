"""One writer at a time: a lock on the index folder that goes when its process goes, however that ends."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from graph.errors import UserError

FILE = "writer.lock"


@contextmanager
def writer_lock(folder: Path) -> Iterator[None]:
    """Hold the index for writing; UserError at once, naming the process that holds it, when another one does."""
    with (folder / FILE).open("a+", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            raise UserError(
                f"{folder}: being written by process {holder}", "one writer at a time", "wait for it to end"
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield
