"""A disk that takes no more, told in one line wherever an index is written: by Python, numpy, faiss or SQLite."""

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from graph.errors import DiskFull

FULL_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""What the system says when a disk, somebody's share of it or a file takes no more."""
FULL_SQLITE_CODES = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE}
"""What SQLite makes of that: of a disk, of a file or a quota, of the memory that it shares by a file."""


@contextmanager
def report_full_disk(where: object) -> Iterator[None]:
    """What a full disk refuses becomes a DiskFull that says `where`; everything else stays what it is."""
    try:
        yield
    except (OSError, sqlite3.OperationalError) as problem:
        if not is_full(problem):
            raise
        said = problem.strerror if isinstance(problem, OSError) else problem
        remedy = "make room there, then run the command again: what was done is kept"
        raise DiskFull(f"{where}: no room ({said})", "a disk with room", remedy) from None


def is_full(problem: OSError | sqlite3.Error) -> bool:
    """Whether the system or SQLite says that a disk takes no more."""
    if isinstance(problem, sqlite3.Error):
        return getattr(problem, "sqlite_errorcode", None) in FULL_SQLITE_CODES
    return problem.errno in FULL_ERRNOS
