"""Locations: the packages, their versions and the hash of their code, the user's cache, and local paths."""

import os
import re
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from shutil import which

from graph.errors import UserError
from graph.shared.ids import checksum, content_id

HOME = Path(__file__).resolve().parents[2]
_URL = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)
"""A scheme of at least two letters, since a single letter is a drive; a Path keeps only one of the two slashes."""


def installed_version(package: str) -> str:
    """The version of an installed package, or "not installed"."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def revision() -> str:
    """The git commit of this installation, with "-dirty" if its files differ from the commit; outside a clone, the package's version."""
    if (HOME / ".git").exists() and which("git"):
        command = ["git", "-C", str(HOME), "describe", "--always", "--dirty", "--exclude=*"]
        described = subprocess.run(command, capture_output=True, text=True, check=False)
        if described.returncode == 0:
            return described.stdout.strip()
    return installed_version("modegraph")


def user_cache() -> Path:
    """The user's cache for modegraph: below XDG_CACHE_HOME, or ~/.cache."""
    setting = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(setting) if Path(setting).is_absolute() else Path("~/.cache").expanduser()
    return root / "modegraph"


def local_path(path: str | Path) -> Path:
    """The path of a file or folder. UserError for a URL, which would otherwise be taken for a folder named after its scheme.

    >>> str(local_path("indexes/s3")), str(local_path("C:/indexes"))
    ('indexes/s3', 'C:/indexes')
    """
    if _URL.match(str(path)):
        remedy = "use a local folder, and copy its files from or to the URL"
        raise UserError(f"{path}: a URL", "a folder on this machine, whose files can be mapped into memory", remedy)
    return Path(path)


WORKER_FOLDERS = ("graph", "serve")
"""The packages that workers run."""


@cache
def code_hash() -> str:
    """The hash of all modules and prompts of WORKER_FOLDERS in this installation."""
    files = sorted(
        file for folder in WORKER_FOLDERS for file in (HOME / folder).rglob("*") if file.suffix in (".py", ".txt")
    )
    return content_id(*(part for file in files for part in (file.relative_to(HOME).as_posix(), checksum(file))))
