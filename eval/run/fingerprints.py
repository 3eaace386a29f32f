"""What identifies a cell: the contents behind the names in its configuration, and the code that made it or its index.

Code is followed through imports, including those inside functions, so that changing a report's layout changes no cell's code."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from graph.errors import UserError
from graph.models.checkpoint import model_name
from graph.retrieve.parts.query import RetrieveSettings
from graph.shared.home import HOME
from graph.store.index_settings import IndexSettings
from graph.types import OpenEncoder

CODE_FOLDERS = ("graph", "data_synth", "train", "serve", "eval")
CELL_CODE = ("eval.run.execute", "serve.engines")
INDEX_CODE = ("graph.build.build", "graph.documents.read")
"""A model's extractions and summaries are in the index's ledger of calls, independent of the code of its engine."""
VERSION_DIGITS = 12


def cell_code() -> str:
    """The version of the code that fills cells."""
    return version_of(CELL_CODE, HOME)


def index_code() -> str:
    """The version of the code that makes indexes."""
    return version_of(INDEX_CODE, HOME)


def version_of(modules: Sequence[str], home: Path) -> str:
    """A hash of the source of `modules`, of what they import from the folders below `home`, and of these folders' prompts."""
    digest = blake2b(digest_size=VERSION_DIGITS // 2)
    for file in sources_of(modules, home):
        content = blake2b(file.read_bytes()).hexdigest()
        digest.update(f"{file.relative_to(home).as_posix()} {content}\n".encode())
    return digest.hexdigest()


def sources_of(modules: Sequence[str], home: Path) -> list[Path]:
    """The files that `version_of` hashes, in order."""
    files: set[Path] = set()
    waiting = list(modules)
    while waiting:
        file = _source_file(waiting.pop(), home)
        if file is not None and file not in files:
            files.add(file)
            waiting += _imports_of(file)
    folders = {home / file.relative_to(home).parts[0] for file in files}
    packages = {parent / "__init__.py" for file in files for parent in file.parents if home in parent.parents}
    return sorted(files | packages | {prompt for folder in folders for prompt in folder.glob("prompts/*.txt")})


def _source_file(module: str, home: Path) -> Path | None:
    """The file of a module in CODE_FOLDERS; None for any other name."""
    path = home.joinpath(*module.split("."))
    if module.split(".")[0] not in CODE_FOLDERS:
        return None
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


@cache
def _parsed_imports(source: bytes) -> tuple[str, ...]:
    return tuple(_imported_names(ast.parse(source)))


def _imports_of(file: Path) -> tuple[str, ...]:
    """Every name that a file imports, anywhere in it: modules, and names that may be modules of a package."""
    return _parsed_imports(file.read_bytes())


def _imported_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


FILE_SETTINGS = ("import_file", "extractor_examples")
MODEL_SETTINGS = ("summary_model", "extractor_model")
TRAINED_SETTINGS = ("selector", "reranker")


class Fingerprints:
    """The contents behind names, each read once; `open_encoder` provides an encoder's fingerprint."""

    def __init__(self, open_encoder: OpenEncoder) -> None:
        self._open_encoder = open_encoder
        self.encoder = cache(self._encoder)
        self.model = cache(model_identity)
        self._hash = cache(content_hash)

    def index(self, settings: IndexSettings) -> dict[str, Any]:
        """Everything that an index of given documents is made from: its settings, and the contents of what they name."""
        values = settings.model_dump()
        return {
            "settings": values,
            "encoder": self.encoder(settings.encoder),
            "models": {key: self.model(values[key]) for key in MODEL_SETTINGS},
            "files": self._of_paths(values, FILE_SETTINGS),
        }

    def retriever(self, settings: RetrieveSettings | None) -> dict[str, Any] | None:
        """A retriever's settings, and the contents of the trained parts that they name; None for none."""
        if settings is None:
            return None
        values = settings.model_dump()
        return {"settings": values, "trained": self._of_paths(values, TRAINED_SETTINGS)}

    def _encoder(self, spec: str) -> str:
        """The fingerprint; "" if there is no such encoder, so that only its own cells fail."""
        try:
            return self._open_encoder(spec).fingerprint
        except UserError:
            return ""

    def _of_paths(self, values: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, str]:
        named = {key: Path(values[key]).expanduser() for key in keys if values[key]}
        return {key: self._hash(path) for key, path in named.items() if path.exists()}


def model_identity(spec: str) -> str:
    """A SPEC; the name of a model in a local folder is replaced by its fingerprint.

    >>> model_identity("openai:m@http://localhost/v1")
    'openai:m@http://localhost/v1'
    """
    kind, _, target = spec.partition(":")
    return f"{kind}:{model_name(target)}" if kind == "hf" else spec


def files_of(path: Path) -> list[Path]:
    """A file, or all files in a folder."""
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


def content_hash(path: Path) -> str:
    """The hash of a file, or of a folder's files and their relative paths."""
    digest = blake2b(digest_size=16)
    for file in files_of(path):
        content = blake2b(file.read_bytes(), digest_size=16).hexdigest()
        digest.update(f"{file.relative_to(path).as_posix()} {content}\n".encode())
    return digest.hexdigest()


def bytes_of(path: Path) -> int:
    """The size of a file, or of all files in a folder."""
    return sum(file.stat().st_size for file in files_of(path))
