"""Processes that work for a run: none that outlives the run that started it, and the machine's cores shared evenly among those that are busy."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.sharedctypes import Synchronized

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


_busy_workers: Synchronized[int] | None = None


def join_workers(at_work: Synchronized[int]) -> None:
    """Make this process a worker; `at_work` counts, across all of them, those that are busy."""
    global _busy_workers
    _busy_workers = at_work


@contextmanager
def busy() -> Iterator[None]:
    """This worker counts as busy as long as the block runs."""
    _add_busy(1)
    try:
        yield
    finally:
        _add_busy(-1)


def share_cores() -> None:
    """Set how many threads torch computes with, in this thread, to this worker's share; nothing where there are no workers."""
    if _busy_workers is not None:
        import torch

        torch.set_num_threads(max(1, (os.cpu_count() or 1) // max(1, _busy_workers.value)))


def _add_busy(change: int) -> None:
    if _busy_workers is not None:
        with _busy_workers.get_lock():
            _busy_workers.value += change
