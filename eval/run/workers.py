"""Worker processes of a run: none outlives the run that started it, and the busy ones share the machine's cores evenly."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.sharedctypes import Synchronized

THREADS = "OMP_NUM_THREADS"


def start_worker() -> None:
    """Call first in a worker: it ends when the run that started it is gone (for example killed)."""
    threading.Thread(target=_follow_parent, daemon=True).start()


@contextmanager
def threads_each(workers: int) -> Iterator[None]:
    """Give processes started in the block an even share of the cores."""
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
    """Make this process a worker; `at_work` counts the busy workers of all processes."""
    global _busy_workers
    _busy_workers = at_work


@contextmanager
def busy() -> Iterator[None]:
    """Count this worker as busy while the block runs."""
    _add_busy(1)
    try:
        yield
    finally:
        _add_busy(-1)


def share_cores() -> None:
    """Set torch's threads, in this thread, to this worker's share of the cores; does nothing without workers."""
    if _busy_workers is not None:
        import torch

        torch.set_num_threads(max(1, (os.cpu_count() or 1) // max(1, _busy_workers.value)))


def _add_busy(change: int) -> None:
    if _busy_workers is not None:
        with _busy_workers.get_lock():
            _busy_workers.value += change
