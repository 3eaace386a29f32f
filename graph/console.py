"""What a command shows: progress on standard error (a bar in a terminal, plain lines elsewhere), results on standard output."""

import json
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")
SECONDS_BETWEEN_LINES = 5.0


def say(line: str) -> None:
    """One line for the person at the terminal (standard error, so that standard output stays parseable)."""
    print(line, file=sys.stderr, flush=True)


def print_json(result: Any) -> None:
    """The result of a command run with --json: one object on standard output."""
    print(json.dumps(result, ensure_ascii=False, indent=2))


def track(items: Iterable[T], what: str, total: int) -> Iterator[T]:
    """Yield `items`, showing how many of `total` are done."""
    if sys.stderr.isatty():
        yield from _track_bar(items, what, total)
    else:
        yield from _track_lines(items, what, total)


def _track_bar(items: Iterable[T], what: str, total: int) -> Iterator[T]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield from progress.track(items, total=total, description=what)


def _track_lines(items: Iterable[T], what: str, total: int) -> Iterator[T]:
    done, last = 0, time.monotonic()
    for item in items:
        yield item
        done += 1
        if time.monotonic() - last > SECONDS_BETWEEN_LINES:
            say(f"{what}: {done:,} of {total:,}")
            last = time.monotonic()
    say(f"{what}: {done:,} done")
