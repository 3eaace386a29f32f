"""What stands behind the names in a configuration: contents of files and folders here, by which a cell is known."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from graph.encode.weights import model_name
from graph.retrieve.parts.settings import RetrieveSettings
from graph.shared.errors import UserError
from graph.shared.types import OpenEncoder
from graph.store.settings import IndexSettings

FILES = ("import_file", "extractor_examples")
MODELS = ("summary_model", "extractor_model")
TRAINED = ("selector", "router", "reranker")


class Contents:
    """The contents behind names, each read once; an encoder's fingerprint is asked of `open_encoder`."""

    def __init__(self, open_encoder: OpenEncoder) -> None:
        self._open_encoder = open_encoder
        self.encoder = cache(self._encoder)
        self.model = cache(model_identity)
        self._hash = cache(content_hash)

    def index(self, settings: IndexSettings) -> dict[str, Any]:
        """All that an index of given documents comes from: its settings, and the contents of what they name."""
        values = settings.model_dump()
        return {
            "settings": values,
            "encoder": self.encoder(settings.encoder),
            "models": {key: self.model(values[key]) for key in MODELS},
            "files": self._of_paths(values, FILES),
        }

    def retriever(self, settings: RetrieveSettings | None) -> dict[str, Any] | None:
        """A retriever's settings, and the contents of the trained parts that they name; None for none."""
        if settings is None:
            return None
        values = settings.model_dump()
        return {"settings": values, "trained": self._of_paths(values, TRAINED)}

    def _encoder(self, spec: str) -> str:
        """The fingerprint; "" where there is no such encoder, so that its cells fail by themselves and the others go on."""
        try:
            return self._open_encoder(spec).fingerprint
        except UserError:
            return ""

    def _of_paths(self, values: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, str]:
        named = {key: Path(values[key]).expanduser() for key in keys if values[key]}
        return {key: self._hash(path) for key, path in named.items() if path.exists()}


def model_identity(spec: str) -> str:
    """A SPEC, by the fingerprint of the model where it lies in a folder here.

    >>> model_identity("openai:m@http://localhost/v1")
    'openai:m@http://localhost/v1'
    """
    kind, _, target = spec.partition(":")
    return f"{kind}:{model_name(target)}" if kind == "hf" else spec


def files_of(path: Path) -> list[Path]:
    """A file, or all files in a folder."""
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


def content_hash(path: Path) -> str:
    """The hash of a file, or of a folder's files by their places in it."""
    digest = blake2b(digest_size=16)
    for file in files_of(path):
        content = blake2b(file.read_bytes(), digest_size=16).hexdigest()
        digest.update(f"{file.relative_to(path).as_posix()} {content}\n".encode())
    return digest.hexdigest()


def bytes_of(path: Path) -> int:
    """The size of a file, or of all files in a folder."""
    return sum(file.stat().st_size for file in files_of(path))
