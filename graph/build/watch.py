"""A folder of documents that an index follows: what comes, changes and goes while it is watched, an edit for each time that it rests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from graph.build.build import BuildReport, Edit, edit_index
from graph.build.read_passages import no_model
from graph.documents.parse.formats import Limits
from graph.documents.read import Note, files_in, read_some
from graph.errors import UserError
from graph.types import OpenEncoder, OpenModel

Stamp = tuple[int, int, int]
"""Inode, bytes and time of change of a file: another one means another content."""


@dataclass(frozen=True)
class Changes:
    """Names of files in a folder: new or changed ones, and those that are gone (or ignored now)."""

    written: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.written or self.gone)


@dataclass(frozen=True)
class FolderEdit:
    """What came of changes: sources of the documents that were read and deleted, and what the index holds now."""

    read: tuple[str, ...]
    deleted: tuple[str, ...]
    report: BuildReport


class WatchedFolder:
    """A folder, from the moment this is made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known = self._last = stamps_of(folder, {})

    def changes(self) -> Changes:
        """What changed since the last changes; none as long as each look finds it otherwise than the look before.

        A folder that is empty at once is rather a disk that is away: nothing is gone then.
        """
        last, self._last = self._last, stamps_of(self.folder, self._known)
        if last != self._last or self._last == self._known or not self._last:
            return Changes()
        known, self._known = self._known, self._last
        written = tuple(name for name, stamp in self._known.items() if known.get(name) != stamp)
        return Changes(written, tuple(name for name in known if name not in self._known))


def watch_folder(folder: Path, index: Path) -> WatchedFolder:
    """A folder that an index is to follow; UserError for what is none, or holds the index, which would follow itself."""
    if not folder.is_dir():
        raise UserError(f"{folder}: not a folder", "a folder to watch", "leave --watch out, or name its folder")
    if index.resolve().is_relative_to(folder.resolve()):
        raise UserError(f"{index}: lies in {folder}", "an index beside the folder that is watched", "change --out")
    return WatchedFolder(folder)


def stamps_of(folder: Path, known: Mapping[str, Stamp]) -> dict[str, Stamp]:
    """The stamp of every file that is neither hidden nor ignored, by its name in the folder; what is `known` of a part that cannot be read."""
    found: dict[str, Stamp] = {}
    for file in files_in(folder):
        if file == folder or (file.is_dir() and not file.is_symlink()):
            found |= {name: stamp for name, stamp in known.items() if (folder / name).is_relative_to(file)}
            continue
        try:
            now = file.stat()
        except OSError:
            continue  # It went after it was listed, or leads nowhere: there is nothing to read.
        found[file.relative_to(folder).as_posix()] = (now.st_ino, now.st_size, now.st_mtime_ns)
    return found


def follow(
    index: Path,
    watched: WatchedFolder,
    limits: Limits,
    note: Note,
    wait: Callable[[], bool],
    open_encoder: OpenEncoder,
    open_model: OpenModel = no_model,
) -> Iterator[FolderEdit]:
    """Edit the index whenever the folder has changed and rests, until `wait`, called before each look, returns False.

    `note` hears of each file that is skipped; what the index has of it stays. Raises what edit_index raises.
    """
    while wait():
        changes = watched.changes()
        if not changes:
            continue
        documents = list(read_some(watched.folder, changes.written, note, limits))
        edits = [*(Edit(delete=name) for name in changes.gone), Edit(add=documents)]
        done = edit_index(index, lambda edits=edits: edits, open_encoder, open_model)  # type: ignore[misc]
        deleted = tuple(name for name, each in zip(changes.gone, done, strict=False) if each.deleted)
        yield FolderEdit(tuple(each.source for each in documents), deleted, done[-1].report)
