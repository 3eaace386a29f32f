"""The size of a folder, and one-line errors for a folder that cannot be written and for a full disk, whether Python, numpy, faiss or SQLite writes to it."""

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from graph.errors import DiskFull, UserError

FULL_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""The system's errors for a full disk, an exhausted quota or a file at its size limit."""
FULL_SQLITE_CODES = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE}
"""SQLite's codes for a full disk, a failed write, and shared memory that cannot grow."""


@contextmanager
def report_full_disk(where: object) -> Iterator[None]:
    """Turn errors from a full disk into a DiskFull that names `where`; other errors pass through."""
    try:
        yield
    except (OSError, sqlite3.OperationalError) as problem:
        if not means_full_disk(problem):
            raise
        message = problem.strerror if isinstance(problem, OSError) else problem
        remedy = "free some space there, then run the command again: finished work is not lost"
        raise DiskFull(f"{where}: no free space ({message})", "a disk with free space", remedy) from None


@contextmanager
def report_unwritable(folder: Path) -> Iterator[None]:
    """As `report_full_disk`; any other error of the system becomes a UserError: the folder cannot be created or written."""
    try:
        with report_full_disk(folder):
            yield
    except OSError as problem:
        remedy = "choose another folder, or change its permissions"
        raise UserError(f"{folder}: cannot be written ({problem.strerror})", "a writable folder", remedy) from None


def means_full_disk(problem: OSError | sqlite3.Error) -> bool:
    """Whether an error of the system or of SQLite means a full disk."""
    if isinstance(problem, sqlite3.Error):
        return getattr(problem, "sqlite_errorcode", None) in FULL_SQLITE_CODES
    return problem.errno in FULL_ERRNOS


def folder_bytes(folder: Path) -> int:
    """The bytes of the files below a folder; a file that is removed meanwhile does not count."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += Path(parent, name).stat().st_size
    return total
