"""The index in a folder as it lies on disk now: opened again when somebody has written it; whoever holds the old one keeps it."""

from functools import cache
from pathlib import Path
from threading import Lock

from graph.index.index import Index, open_index
from graph.shared.types import OpenEncoder
from graph.store.manifest import read_manifest


class FreshIndex:
    """The current generation of the index in `folder`; its encoder is opened once for all of them. Threads may share it."""

    def __init__(self, folder: Path, open_by_spec: OpenEncoder) -> None:
        self.folder = folder
        self.open_encoder = cache(open_by_spec)
        self._lock = Lock()
        self._index = open_index(folder, self.open_encoder)

    def get(self) -> Index:
        """The index as it is now; UserError when it cannot be opened."""
        with self._lock:
            if read_manifest(self.folder).identity != self._index.manifest.identity:
                self._index = open_index(self.folder, self.open_encoder)
            return self._index
