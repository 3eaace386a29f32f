"""The machine's cores, shared evenly among the workers that have something to do: the last one computes on all of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.sharedctypes import Synchronized

_at_work: Synchronized[int] | None = None


def join_workers(at_work: Synchronized[int]) -> None:
    """Make this process a worker; `at_work` counts, across all of them, those that are busy."""
    global _at_work
    _at_work = at_work


@contextmanager
def busy() -> Iterator[None]:
    """This worker counts as busy as long as the block runs."""
    _add(1)
    try:
        yield
    finally:
        _add(-1)


def share_cores() -> None:
    """Set how many threads torch computes with, in this thread, to this worker's share; nothing where there are no workers."""
    if _at_work is not None:
        import torch

        torch.set_num_threads(max(1, (os.cpu_count() or 1) // max(1, _at_work.value)))


def _add(change: int) -> None:
    if _at_work is not None:
        with _at_work.get_lock():
            _at_work.value += change
