"""Which code this is: workers that have another would read documents in another way."""

from functools import cache
from pathlib import Path

from graph.shared.ids import checksum, content_id

FOLDERS = ("graph", "serve")
"""What workers run."""


@cache
def code_hash() -> str:
    """The hash of all modules and prompts of FOLDERS, as they lie beside this one."""
    home = Path(__file__).resolve().parents[2]
    files = sorted(file for folder in FOLDERS for file in (home / folder).rglob("*") if file.suffix in (".py", ".txt"))
    return content_id(*(part for file in files for part in (file.relative_to(home).as_posix(), checksum(file))))
