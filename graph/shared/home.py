"""Where things are: the packages, their versions and the hash of their code, the user's cache, and whatever a path names."""

import os
import re
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from graph.errors import UserError
from graph.shared.ids import checksum, content_id

HOME = Path(__file__).resolve().parents[2]
_URL = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)
"""A scheme of two letters or more, since one is a drive; a Path keeps one stroke of the two."""


def installed_version(package: str) -> str:
    """The version of an installed package, or "not installed"."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def user_cache() -> Path:
    """The user's cache for modegraph: below XDG_CACHE_HOME, or ~/.cache."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(given) if Path(given).is_absolute() else Path("~/.cache").expanduser()
    return root / "modegraph"


def local_path(given: str | Path) -> Path:
    """The path of a file or folder. UserError for a URL, which would otherwise be a folder named after its scheme.

    >>> str(local_path("indexes/s3")), str(local_path("C:/indexes"))
    ('indexes/s3', 'C:/indexes')
    """
    if _URL.match(str(given)):
        remedy = "name a folder, and copy what is in it from or to the URL"
        raise UserError(f"{given}: a URL", "a folder on this machine, whose files can be mapped into memory", remedy)
    return Path(given)


WORKER_FOLDERS = ("graph", "serve")
"""What workers run."""


@cache
def code_hash() -> str:
    """The hash of all modules and prompts of FOLDERS, as they lie beside this one."""
    home = Path(__file__).resolve().parents[2]
    files = sorted(
        file for folder in WORKER_FOLDERS for file in (home / folder).rglob("*") if file.suffix in (".py", ".txt")
    )
    return content_id(*(part for file in files for part in (file.relative_to(home).as_posix(), checksum(file))))
