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
BATCH_TIME_SHARE = 0.02
"""Items that follow the first one within this share of the time that the first one took belong to its batch, so they say nothing about the pace."""
LOG = logging.getLogger("modegraph")
_QUIET: ContextVar[bool] = ContextVar("quiet", default=False)
_RECORD: ContextVar[Path | None] = ContextVar("record", default=None)


def say(line: str) -> None:
    """Print a line, with secrets redacted, to standard error; within `quiet()`, log it instead; within `recorded_in()`, also append it to the file."""
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
    """Log the lines that `say` would print in the block, in this thread or task."""
    token = _QUIET.set(True)
    try:
        yield
    finally:
        _QUIET.reset(token)


@contextmanager
def recorded_in(file: Path) -> Iterator[None]:
    """Also append the lines that the block passes to `say` to a file, each with its time."""
    token = _RECORD.set(file)
    try:
        yield
    finally:
        _RECORD.reset(token)


def print_json(result: Any) -> None:
    """Print the result of a command with --json: one object on standard output."""
    print(json.dumps(result, ensure_ascii=False, indent=2))


def counted(count: int, noun: str) -> str:
    """A number of things, in words that agree with it.

    >>> counted(1, "passage"), counted(1200, "model call")
    ('1 passage', '1,200 model calls')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


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
    done = 0
    with _progress_display(what, total) as show:
        for item in items:
            yield item
            done += size(item)
            show(done)


@contextmanager
def byte_bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A function that shows how many bytes of `total` are done: as a bar in a terminal, else as occasional lines."""
    with _progress_display(what, total, in_bytes=True) as show:
        yield show
        show(total)


@contextmanager
def _progress_display(what: str, total: int, in_bytes: bool = False) -> Iterator[Callable[[int], None]]:
    """A function that shows the number of items (or bytes) that are done: as a bar in a terminal, else as occasional lines.

    The pace is measured from the end of the first item or batch, because its time often includes start-up; further items of that batch print no line.
    """
    if sys.stderr.isatty() and not _QUIET.get():
        from rich import progress as bars
        from rich.console import Console

        counts = (bars.DownloadColumn(),) if in_bytes else (bars.MofNCompleteColumn(), bars.TimeElapsedColumn())
        columns = (bars.TextColumn("{task.description}"), bars.BarColumn(), *counts, bars.TimeRemainingColumn())
        with bars.Progress(*columns, console=Console(stderr=True)) as progress:
            task = progress.add_task(what, total=total)
            yield lambda done: progress.update(task, completed=done)
        return
    done = first = 0
    begun = last = started = time.monotonic()

    def show(now_done: int) -> None:
        nonlocal done, first, last, started
        now, done = time.monotonic(), now_done
        if not first:
            started, first = now, done
        elif (
            now - last > SECONDS_BETWEEN_LINES
            and first < done < total
            and now - started > BATCH_TIME_SHARE * (started - begun)
        ):
            last = now
            left = duration((now - started) * (total - done) / (done - first))
            count = f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB" if in_bytes else f"{done:,} of {total:,}"
            say(f"{what}: {count}, about {left} left")

    yield show
    if not in_bytes:
        say(f"{what}: {done:,} done")
