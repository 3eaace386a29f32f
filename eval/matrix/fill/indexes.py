"""The index that a group of cells shares: made once, and made again when the code that makes indexes has changed."""

from __future__ import annotations

import shutil
import time
from functools import partial
from pathlib import Path

from eval.matrix.fill.caching_encoder import caching_encoder
from eval.matrix.fill.code import index_code
from eval.matrix.fill.types import Cell
from graph.build.build import build_index
from graph.documents.read import read_documents
from graph.index.index import Index, open_index
from graph.shared.console import say
from graph.shared.jsonl import write_text
from graph.shared.types import OpenEncoder, OpenModel
from graph.store.manifest import MANIFEST
from graph.store.seal import LEDGER


def group_index(cell: Cell, folder: Path, open_encoder: OpenEncoder, open_model: OpenModel) -> Index:
    """The index of a cell in `folder`, made if it is not there, was left half-made, or is the work of other code.

    A finished index that the task names is taken as it is.
    """
    if cell.task.index is not None:
        return open_index(folder, open_encoder)
    made_by, code = folder.with_name(f"{folder.name}.code"), index_code()
    if made_by.is_file() and made_by.read_text(encoding="utf-8") != code:
        say(f"{cell.task.name}: the code has changed since it was indexed")
        drop_index(folder)
    if not (folder / MANIFEST).is_file():
        started = time.perf_counter()
        folder.parent.mkdir(parents=True, exist_ok=True)
        write_text(made_by, code)
        corpus = cell.task.documents
        keeping = partial(caching_encoder, open_encoder, documents=corpus)
        build_index(folder, read_documents(corpus, say), cell.system.index, keeping, open_model)
        say(f"{cell.task.name}: indexed ({time.perf_counter() - started:.1f} s)")
    return open_index(folder, open_encoder)


def drop_index(folder: Path) -> None:
    """Remove an index but for its ledger: a language model's calls are not made again for the same prompts."""
    for file in folder.iterdir() if folder.is_dir() else ():
        if file.is_dir():
            shutil.rmtree(file)
        elif not file.name.startswith(LEDGER):
            file.unlink()
