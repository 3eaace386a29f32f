"""The progress of work that fills a folder: `progress.jsonl` in the folder, deleted when the work is done.

The first line describes the work, each further line its progress. The working process holds a lock on the file, which is released when the process ends:
an unlocked file belongs to interrupted work. Resumed work appends another description.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from graph.errors import UserError
from graph.shared.jsonl import append_jsonl

PROGRESS = "progress.jsonl"
ABOUT = "about"
READER_S = 0.01
"""The time to wait for a reader, which holds a shared lock."""


@dataclass(frozen=True)
class FolderProgress:
    """Unfinished work: its description, its last row of figures, whether its process is alive, and the time left at the pace since the last start."""

    about: Mapping[str, Any]
    last: Mapping[str, Any]
    alive: bool
    seconds_left: float | None


@contextmanager
def report_progress(folder: Path, about: Mapping[str, Any]) -> Iterator[None]:
    """Write `about` to the progress file of `folder`; UserError as in `check_idle`.

    The file is deleted when the block succeeds; after an error it is left for `read_progress`.
    """
    file = folder / PROGRESS
    with _locked(folder):
        append_jsonl(file, {ABOUT: dict(about), "at": time.time()})
        yield
        file.unlink(missing_ok=True)


def _locked(folder: Path) -> TextIO:
    """The progress file of `folder`, open and locked; UserError as in `check_idle`."""
    while True:
        file = (folder / PROGRESS).open("a", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file.fileno()).st_nlink:
                return file
            file.close()  # Deleted by the process that worked until now.
        except BlockingIOError:
            file.close()
            check_idle(folder)
            time.sleep(READER_S)


def check_idle(folder: Path) -> None:
    """UserError if another process works in `folder`."""
    progress = read_progress(folder)
    if progress is not None and progress.alive:
        raise UserError(f"{folder}: another process is working on it", "one process at a time", "wait until it is done")


def note_progress(folder: Path, step: int, of: int, figures: Mapping[str, Any] | None = None) -> None:
    """Append a row (step `step` of `of`, and figures) to the progress file of `folder`, if there is one."""
    if (folder / PROGRESS).exists():
        append_jsonl(folder / PROGRESS, {"at": time.time(), "step": step, "of": of, **(figures or {})})


def read_progress(folder: Path) -> FolderProgress | None:
    """The progress of the work in `folder`; None if there is none. A last line that a kill truncated is skipped."""
    try:
        with (folder / PROGRESS).open(encoding="utf-8", errors="replace") as file:
            rows, alive = parsed_lines(file.read()), is_locked(file)
    except FileNotFoundError:
        return None
    start = max((number for number, row in enumerate(rows) if ABOUT in row), default=-1)
    about = rows[start][ABOUT] if start >= 0 else {}
    steps = [row for row in rows if "step" in row]
    recent = [row for row in rows[start + 1 :] if "step" in row]
    return FolderProgress(about, steps[-1] if steps else {}, alive, seconds_left(recent))


def seconds_left(rows: list[dict[str, Any]]) -> float | None:
    """The time for the remaining steps at the pace between the first row and the last; None if there is no step between them.

    >>> seconds_left([{"at": 0.0, "step": 10, "of": 40}, {"at": 5.0, "step": 20, "of": 40}])
    10.0
    >>> seconds_left([{"at": 0.0, "step": 10, "of": 40}]) is None
    True
    """
    if len(rows) < 2 or rows[-1]["step"] <= rows[0]["step"]:
        return None
    seconds_per_step = (rows[-1]["at"] - rows[0]["at"]) / (rows[-1]["step"] - rows[0]["step"])
    return float(seconds_per_step * (rows[-1]["of"] - rows[-1]["step"]))


def parsed_lines(text: str) -> list[dict[str, Any]]:
    """The JSON objects in the lines of a text, without those that cannot be read, such as a line that is being written."""
    rows = []
    for line in text.splitlines():
        with suppress(ValueError):
            rows.append(json.loads(line))
    return [row for row in rows if isinstance(row, dict)]


def is_locked(file: TextIO) -> bool:
    """Whether a process has locked an open file; if none has, this call takes a shared lock, which is held until the file is closed."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
