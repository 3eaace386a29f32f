"""A folder that can be watched while it is filled: `progress.jsonl` in it, which goes when the work is done.

Its first line says what is done, each further one how far it is. The process that works holds a lock on it, and a lock goes with its
process, however that ends: a file without one is of work that was stopped. Work that goes on with what is there adds another first line.
"""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graph.shared.jsonl import append_jsonl

PROGRESS = "progress.jsonl"
ABOUT = "about"


@dataclass(frozen=True)
class FolderProgress:
    """Work that has not ended: what it is, its last row of figures, and whether its process is alive.

    `seconds_left` is what the rows since it last began let expect; None before two of them.
    """

    about: Mapping[str, Any]
    last: Mapping[str, Any]
    alive: bool
    seconds_left: float | None


@contextmanager
def report_progress(folder: Path, about: Mapping[str, Any]) -> Iterator[None]:
    """Say in `folder` what it is filled with, until the block ends well; after an error the file stays, for `read_watched` to tell of."""
    file = folder / PROGRESS
    with file.open("a", encoding="utf-8") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        append_jsonl(file, {ABOUT: dict(about), "at": time.time()})
        yield
        file.unlink(missing_ok=True)


def note_progress(folder: Path, step: int, of: int, figures: Mapping[str, Any] | None = None) -> None:
    """One more row, where `folder` is watched."""
    if (folder / PROGRESS).exists():
        append_jsonl(folder / PROGRESS, {"at": time.time(), "step": step, "of": of, **(figures or {})})


def read_progress(folder: Path) -> FolderProgress | None:
    """How far the work in `folder` is; None where nothing is under way. A last line that was cut by a kill is left out."""
    try:
        text = (folder / PROGRESS).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    rows = [row for line in text.splitlines() if (row := _parsed(line)) is not None]
    begun = max((place for place, row in enumerate(rows) if ABOUT in row), default=-1)
    since = rows[begun + 1 :]
    about = rows[begun][ABOUT] if begun >= 0 else {}
    last: Mapping[str, Any] = next((row for row in reversed(rows) if "step" in row), {})
    return FolderProgress(about, last, _is_held(folder / PROGRESS), seconds_left(since))


def seconds_left(rows: list[dict[str, Any]]) -> float | None:
    """What the steps between the first row and the last let expect of the rest.

    >>> seconds_left([{"at": 0.0, "step": 10, "of": 40}, {"at": 5.0, "step": 20, "of": 40}])
    10.0
    >>> seconds_left([{"at": 0.0, "step": 10, "of": 40}]) is None
    True
    """
    if len(rows) < 2 or rows[-1]["step"] <= rows[0]["step"]:
        return None
    each = (rows[-1]["at"] - rows[0]["at"]) / (rows[-1]["step"] - rows[0]["step"])
    return float(each * (rows[-1]["of"] - rows[-1]["step"]))


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def _is_held(file: Path) -> bool:
    try:
        with file.open(encoding="utf-8") as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False
