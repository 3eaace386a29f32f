"""The files of a folder, but for those that `.modegraphignore` files name: patterns and rules are those of `.gitignore`.

Each folder may have one; what the deepest says last of a path holds, and what lies in a folder that is left out is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from graph.documents.parse.plain import decode_text
from graph.shared.errors import UserError

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_FILE = ".modegraphignore"


def files_in(folder: Path) -> Iterator[Path]:
    """The files below `folder` in order of name, without hidden and ignored ones.

    A link to a folder is not followed, a folder that cannot be read not entered: it is given itself.
    """
    yield from _files_in(folder, ())


def _files_in(folder: Path, above: tuple[tuple[Path, GitIgnoreSpec], ...]) -> Iterator[Path]:
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        yield folder
        return
    rules = above
    if (own := folder / IGNORE_FILE).is_file():
        rules = (*above, (folder, _rules(own)))
    for entry in entries:
        is_folder = entry.is_dir() and not entry.is_symlink()
        if entry.name.startswith(".") or _ignored(entry, is_folder, rules):
            continue
        if is_folder:
            yield from _files_in(entry, rules)
        else:
            yield entry


def _ignored(entry: Path, is_folder: bool, rules: tuple[tuple[Path, GitIgnoreSpec], ...]) -> bool:
    for folder, spec in reversed(rules):
        said = spec.check_file(entry.relative_to(folder).as_posix() + "/" * is_folder).include
        if said is not None:
            return said
    return False


def _rules(file: Path) -> GitIgnoreSpec:
    try:
        from pathspec import GitIgnoreSpec
    except ModuleNotFoundError:
        found = f"{file}: the package pathspec is not installed"
        raise UserError(found, "the extra documents", "pip install 'modegraph[documents]'") from None
    return GitIgnoreSpec.from_lines(decode_text(file.read_bytes(), str(file)).splitlines())
