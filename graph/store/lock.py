"""One writer at a time, first come, first served, among all the processes and threads of a machine.

A writer draws a ticket: a numbered file in the index's folder, locked as long as its writer waits and writes. Whoever has the lowest
ticket writes. A lock goes with its process, however that ends, and a ticket without a lock is thrown away by whoever finds it.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from graph.errors import UserError
from graph.shared.console import say

LOCK_FILE = "writer.lock"
"""Locked for a moment by whoever draws a ticket or looks at those of others."""
TICKET = "writer-{:09}.ticket"
POLL_S = 0.05
GiveUp = Callable[[], bool]


class IndexBusy(UserError):
    """Another writer holds the index, and its end was not waited for."""

    def __init__(self, folder: Path, writer: str) -> None:
        super().__init__(f"{folder}: being written by process {writer}", "one writer at a time", "wait for it to end")


@contextmanager
def writer_lock(folder: Path, give_up: GiveUp | None = None) -> Iterator[None]:
    """Hold the index for writing, when all who came before are done.

    `give_up` is asked again and again meanwhile: IndexBusy once it says yes. Without it there is no end to waiting, and a line
    says what is waited for.
    """
    with _ticket(folder) as number:
        told = False
        while writer := _writer_before(folder, number):
            if give_up is not None and give_up():
                raise IndexBusy(folder, writer)
            if give_up is None and not told:
                say(f"{folder}: being written by process {writer}; waiting until it is done")
                told = True
            time.sleep(POLL_S)
        yield


@contextmanager
def _ticket(folder: Path) -> Iterator[int]:
    """The number after all that are there, until the block ends."""
    with _tickets_locked(folder):
        number = 1 + max(_ticket_numbers(folder), default=0)
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
    """The process of the lowest ticket below `number` that is held, "" when there is none; others are thrown away."""
    with _tickets_locked(folder):
        for each in sorted(_ticket_numbers(folder)):
            if each >= number:
                break
            file = folder / TICKET.format(each)
            try:
                with file.open(encoding="utf-8") as ticket:
                    if _is_held(ticket):
                        return ticket.read() or "unknown"
            except FileNotFoundError:
                continue
            file.unlink(missing_ok=True)
    return ""


def _is_held(ticket: TextIO) -> bool:
    try:
        fcntl.flock(ticket, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _ticket_numbers(folder: Path) -> list[int]:
    return [int(file.stem.partition("-")[2]) for file in folder.glob("writer-*.ticket")]


@contextmanager
def _tickets_locked(folder: Path) -> Iterator[None]:
    """Alone with the tickets."""
    with (folder / LOCK_FILE).open("a", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
