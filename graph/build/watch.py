"""Keeps an index in step with a folder: when files have been added, changed or removed and the folder has settled, one edit applies the changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from graph.build.build import BuildReport, Edit, edit_index
from graph.build.read_passages import no_model
from graph.documents.parse.formats import Limits
from graph.documents.parse.plain import clean
from graph.documents.read import Note, files_in, read_some
from graph.errors import UserError
from graph.types import OpenEncoder, OpenModel

Stamp = tuple[int, int, int]
"""Inode, size and modification time of a file: with a different stamp, a file counts as changed."""


@dataclass(frozen=True)
class Changes:
    """Names of files in a folder: `updated` files are new or changed, `removed` files are gone or newly ignored."""

    updated: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.updated or self.removed)


@dataclass(frozen=True)
class FolderEdit:
    """The result of an edit: sources of the documents read and deleted, and the report on the index."""

    read: tuple[str, ...]
    deleted: tuple[str, ...]
    report: BuildReport


class WatchedFolder:
    """A folder that is watched from the moment this object is created."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known = self._last = stamps_of(folder, {})

    def changes(self) -> Changes:
        """The changes since the last non-empty result; empty unless the previous call found the same stamps.

        A folder that is suddenly empty is assumed to be an unmounted disk: nothing counts as removed. Nor does a file whose name is not UTF-8, since it was
        never read.
        """
        last, self._last = self._last, stamps_of(self.folder, self._known)
        if last != self._last or self._last == self._known or not self._last:
            return Changes()
        known, self._known = self._known, self._last
        updated = tuple(name for name, stamp in self._known.items() if known.get(name) != stamp)
        removed = (name for name in known if name not in self._known)
        return Changes(updated, tuple(name for name in removed if name == clean(name)))


def watch_folder(folder: Path, index: Path) -> WatchedFolder:
    """Start watching a folder for an index; UserError if it is not a folder, or if it contains the index (each edit would then count as a change)."""
    if not folder.is_dir():
        raise UserError(f"{folder}: not a folder", "a folder to watch", "leave --watch out, or index the file's folder")
    if index.resolve().is_relative_to(folder.resolve()):
        raise UserError(
            f"{index}: inside {folder}", "an index outside the watched folder", "set --out to a folder outside it"
        )
    return WatchedFolder(folder)


def stamps_of(folder: Path, known: Mapping[str, Stamp]) -> dict[str, Stamp]:
    """Stamps by name of all files that are neither hidden nor ignored; for a folder that cannot be read, those in `known`."""
    stamps: dict[str, Stamp] = {}
    for file in files_in(folder):
        if file == folder or (file.is_dir() and not file.is_symlink()):
            stamps |= {name: stamp for name, stamp in known.items() if (folder / name).is_relative_to(file)}
            continue
        try:
            status = file.stat()
        except OSError:
            continue  # Removed after it was listed, or a dangling link: there is nothing to read.
        stamps[file.relative_to(folder).as_posix()] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return stamps


def follow(
    index: Path,
    watched: WatchedFolder,
    limits: Limits,
    note: Note,
    wait: Callable[[], bool],
    open_encoder: OpenEncoder,
    open_model: OpenModel = no_model,
) -> Iterator[FolderEdit]:
    """Edit the index whenever the folder has changed and settled, until `wait`, called before each check, returns False.

    `note` is called for each skipped file; its document stays in the index. Errors are those of `edit_index`.
    """
    while wait():
        changes = watched.changes()
        if not changes:
            continue
        documents = list(read_some(watched.folder, changes.updated, note, limits))
        edits = [*(Edit(delete=name) for name in changes.removed), Edit(add=documents)]
        results = edit_index(index, lambda edits=edits: edits, open_encoder, open_model)  # type: ignore[misc]
        deleted = tuple(name for name, result in zip(changes.removed, results, strict=False) if result.deleted)
        yield FolderEdit(tuple(document.source for document in documents), deleted, results[-1].report)
