"""Output of commands: progress on standard error (a bar in a terminal, plain lines elsewhere), results on standard output.

Inside `quiet()` no progress is printed: its lines are logged instead (logger "modegraph", level INFO).
"""

import json
import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

from graph.errors import redact

T = TypeVar("T")
SECONDS_BETWEEN_LINES = 5.0
BURST = 0.02
"""Items that follow the first one within this share of the first one's time belong to its batch, so they do not show the pace."""
LOG = logging.getLogger("modegraph")
_QUIET: ContextVar[bool] = ContextVar("quiet", default=False)
_RECORD: ContextVar[Path | None] = ContextVar("record", default=None)


def say(line: str) -> None:
    """Print a line without secrets to standard error, so that standard output stays parseable; within `quiet()`, log it."""
    line = redact(line)
    if (record := _RECORD.get()) is not None:
        with record.open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}\n")
    if _QUIET.get():
        LOG.info("%s", line)
    else:
        print(line, file=sys.stderr, flush=True)


@contextmanager
def quiet() -> Iterator[None]:
    """Log the lines of the block instead of printing them, in this thread or task."""
    token = _QUIET.set(True)
    try:
        yield
    finally:
        _QUIET.reset(token)


@contextmanager
def recorded_in(file: Path) -> Iterator[None]:
    """Append the lines of the block to a file as well, each with its time."""
    token = _RECORD.set(file)
    try:
        yield
    finally:
        _RECORD.reset(token)


def print_json(result: Any) -> None:
    """Print the result of a command with --json: one object on standard output."""
    print(json.dumps(result, ensure_ascii=False, indent=2))


SECONDS_PER_HOUR = 3600.0


def duration(seconds: float) -> str:
    """Seconds in readable form, in at most two units.

    >>> duration(0.4), duration(59.6), duration(3599), duration(7320)
    ('1 s', '1 min', '1 h', '2 h 2 min')
    """
    whole = max(1, round(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes = round(whole / 60)
    hours, minutes = divmod(minutes, 60)
    return " ".join([f"{hours} h"] * (hours > 0) + [f"{minutes} min"] * (minutes > 0))


def track(items: Iterable[T], what: str, total: int, size: Callable[[T], int] = lambda _: 1) -> Iterator[T]:
    """Yield `items`, showing how many of `total` are done; an item counts as `size(item)`, for example the length of a batch."""
    if sys.stderr.isatty() and not _QUIET.get():
        yield from _track_bar(items, what, total, size)
    else:
        yield from _track_lines(items, what, total, size)


@contextmanager
def byte_bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A function that shows how many bytes of `total` are done: as a bar in a terminal, else as occasional lines."""
    if sys.stderr.isatty() and not _QUIET.get():
        with _bar(what, total, in_bytes=True) as show:
            yield show
            show(total)
        return
    started, first = time.monotonic(), -1
    last = started

    def line(done: int) -> None:
        nonlocal last, first
        first = done if first < 0 else first
        if time.monotonic() - last > SECONDS_BETWEEN_LINES and first < done < total:
            last = time.monotonic()
            left = duration((last - started) * (total - done) / (done - first))
            say(f"{what}: {done / 1e6:,.0f} of {total / 1e6:,.0f} MB, about {left} left")

    yield line


@contextmanager
def _bar(what: str, total: int, in_bytes: bool = False) -> Iterator[Callable[[int], None]]:
    """A function that moves a bar in the terminal to the number of items (or bytes) that are done."""
    from rich import progress as bars
    from rich.console import Console

    counts = (bars.DownloadColumn(),) if in_bytes else (bars.MofNCompleteColumn(), bars.TimeElapsedColumn())
    columns = (bars.TextColumn("{task.description}"), bars.BarColumn(), *counts, bars.TimeRemainingColumn())
    with bars.Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(what, total=total)
        yield lambda done: progress.update(task, completed=done)


def _track_bar(items: Iterable[T], what: str, total: int, size: Callable[[T], int]) -> Iterator[T]:
    done = 0
    with _bar(what, total) as show:
        for item in items:
            yield item
            done += size(item)
            show(done)


def _track_lines(items: Iterable[T], what: str, total: int, size: Callable[[T], int]) -> Iterator[T]:
    """Show progress in lines. The pace is measured after the first item, whose time often includes start-up; the rest of its batch prints no line."""
    done = first = 0
    begun = last = started = time.monotonic()
    for item in items:
        yield item
        now, done = time.monotonic(), done + size(item)
        if not first:
            started, first = now, done
        elif now - last > SECONDS_BETWEEN_LINES and first < done < total and now - started > BURST * (started - begun):
            last = now
            left = duration((now - started) * (total - done) / (done - first))
            say(f"{what}: {done:,} of {total:,}, about {left} left")
    say(f"{what}: {done:,} done")
