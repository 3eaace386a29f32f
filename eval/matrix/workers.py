"""Processes that work for a run: each with its share of the threads, and none that outlives the run that started it."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

THREADS = "OMP_NUM_THREADS"


def start_worker() -> None:
    """To be called first in a worker: it ends when the run that started it is gone (killed, say)."""
    threading.Thread(target=_follow_parent, daemon=True).start()


@contextmanager
def threads_each(workers: int) -> Iterator[None]:
    """Processes started in the block compute on an even share of the cores."""
    before = os.environ.get(THREADS)
    os.environ[THREADS] = str(max(1, (os.cpu_count() or 1) // workers))
    try:
        yield
    finally:
        if before is None:
            del os.environ[THREADS]
        else:
            os.environ[THREADS] = before


def _follow_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
