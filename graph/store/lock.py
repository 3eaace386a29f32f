"""One writer at a time, first come, first served, across all processes and threads of a machine.

A writer takes a ticket: a numbered file in the folder of the index, which stays locked while the writer waits and writes. The writer with
the lowest ticket writes. A lock is released when its process ends, however it ends; the next writer deletes tickets without a lock.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from graph.errors import UserError
from graph.shared.console import say
from graph.shared.disk import report_unwritable
from graph.shared.progress import is_locked

LOCK_FILE = "writer.lock"
"""Locked briefly while a ticket is taken or the other tickets are inspected."""
TICKET = "writer-{:09}.ticket"
POLL_S = 0.05
GiveUp = Callable[[], bool]


class IndexBusy(UserError):
    """Another writer holds the lock, and the caller gave up waiting."""

    def __init__(self, folder: Path, writer: str) -> None:
        super().__init__(
            f"{folder}: being written by process {writer}", "one writer at a time", "wait until that process is done"
        )


@contextmanager
def writer_lock(folder: Path, give_up: GiveUp | None = None) -> Iterator[None]:
    """Hold the writer lock, after all earlier writers. IndexBusy once `give_up` (polled) returns True.

    Without `give_up`, a message names the writer that is waited for.
    """
    with _ticket(folder) as number:
        wait_for_turn(folder, partial(_writer_before, folder, number), give_up, POLL_S)
        yield


def wait_for_turn(folder: Path, writer_before: Callable[[], str], give_up: GiveUp | None, poll_s: float) -> None:
    """Wait until `writer_before` names no writer; `give_up` is as in `writer_lock`."""
    announced = False
    while writer := writer_before():
        if give_up is not None and give_up():
            raise IndexBusy(folder, writer)
        if give_up is None and not announced:
            say(f"{folder}: being written by process {writer}; waiting until it is done")
            announced = True
        time.sleep(poll_s)


@contextmanager
def _ticket(folder: Path) -> Iterator[int]:
    """A ticket with the next number, until the block ends. UserError if the folder cannot be written."""
    with report_unwritable(folder), queue_of_writers(folder) as numbers:
        number = 1 + max(numbers, default=0)
        ticket = (folder / TICKET.format(number)).open("x", encoding="utf-8")
        fcntl.flock(ticket, fcntl.LOCK_EX)
    with ticket:
        ticket.write(str(os.getpid()))
        ticket.flush()
        try:
            yield number
        finally:
            (folder / TICKET.format(number)).unlink(missing_ok=True)


def _writer_before(folder: Path, number: int) -> str:
    """The process of the lowest locked ticket below `number`, else "". Deletes earlier tickets without a lock."""
    with queue_of_writers(folder) as numbers:
        for earlier in sorted(numbers):
            if earlier >= number:
                break
            file = folder / TICKET.format(earlier)
            if process := _holder_of(file):
                return process
            file.unlink(missing_ok=True)
    return ""


def writer_of(folder: Path) -> str:
    """The process of the lowest locked ticket, as in `_writer_before`. Takes a shared lock on each free ticket for a moment, but writes and deletes nothing:
    the folder may be read-only.
    """
    return next(filter(None, map(_holder_of, sorted(folder.glob("writer-*.ticket")))), "")


def _holder_of(file: Path) -> str:
    """The process that has locked a ticket ("unknown" until it has written its id); "" if none has."""
    with suppress(FileNotFoundError), file.open(encoding="utf-8") as ticket:
        if is_locked(ticket):
            return ticket.read() or "unknown"
    return ""


@contextmanager
def queue_of_writers(folder: Path) -> Iterator[list[int]]:
    """The numbers of all tickets; during the block, no other writer takes or inspects one."""
    with (folder / LOCK_FILE).open("a", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield [int(file.stem.partition("-")[2]) for file in folder.glob("writer-*.ticket")]
