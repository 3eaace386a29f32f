"""Which code made a cell or an index: a hash over the source of all modules of ours that have a part in it.

They are followed from import to import, those inside functions too, so that a report's layout changes no cell's code.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import blake2b
from pathlib import Path

from graph.shared.home import HOME

FOLDERS = ("graph", "data_synth", "train", "serve", "eval")
CELL_CODE = ("eval.matrix.fill.fill", "serve.engines")
INDEX_CODE = ("graph.build.build", "graph.documents.read")
"""What a model read or summed up is in the index's ledger of calls, whatever the code of its engine."""
DIGITS = 12


def cell_code() -> str:
    """The version of the code that fills cells."""
    return version_of(CELL_CODE, HOME)


def index_code() -> str:
    """The version of the code that makes indexes."""
    return version_of(INDEX_CODE, HOME)


def version_of(modules: Sequence[str], home: Path) -> str:
    """A hash of the source of `modules`, of what they import from the folders below `home`, and of these folders' prompts."""
    digest = blake2b(digest_size=DIGITS // 2)
    for file in sources_of(modules, home):
        content = blake2b(file.read_bytes()).hexdigest()
        digest.update(f"{file.relative_to(home).as_posix()} {content}\n".encode())
    return digest.hexdigest()


def sources_of(modules: Sequence[str], home: Path) -> list[Path]:
    """The files that `version_of` hashes, in order."""
    files: set[Path] = set()
    waiting = list(modules)
    while waiting:
        file = _source(waiting.pop(), home)
        if file is not None and file not in files:
            files.add(file)
            waiting += _imported(file)
    folders = {home / file.relative_to(home).parts[0] for file in files}
    packages = {parent / "__init__.py" for file in files for parent in file.parents if home in parent.parents}
    return sorted(files | packages | {prompt for folder in folders for prompt in folder.glob("prompts/*.txt")})


def _source(module: str, home: Path) -> Path | None:
    """The file of a module of ours; None for any other name."""
    path = home.joinpath(*module.split("."))
    if module.split(".")[0] not in FOLDERS:
        return None
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


@cache
def _parsed(source: bytes) -> tuple[str, ...]:
    return tuple(_names(ast.parse(source)))


def _imported(file: Path) -> tuple[str, ...]:
    """Every name that a file imports, wherever in it: modules, and what may be a module in a package."""
    return _parsed(file.read_bytes())


def _names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
