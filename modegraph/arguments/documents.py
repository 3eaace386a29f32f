"""Whatever a user of Python has as documents: a path, documents, rows, a table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from graph.documents.parse.types import Limits
from graph.documents.read import Note, Skipped, documents_of_rows, read_documents
from graph.shared.console import LOG
from graph.shared.errors import UserError
from graph.shared.redact import redact
from graph.shared.types import Document

Documents: TypeAlias = "str | Path | Document | Iterable[Document | Mapping[str, Any] | Any]"
"""A folder, a file, a `.jsonl`; or documents and rows with `id`, `text` and, if there are, `title` and `metadata`."""
EXPECTED = "a path, documents, or rows with an id and a text"
COLUMNS = ("id", "title", "text", "metadata")


def documents_of(given: Documents, limits: Limits, note: Note) -> Iterator[Document]:
    """The documents, one after another; `note` hears what is skipped. UserError for one that is none, and when there are none at all."""
    if isinstance(given, str | Path):
        return read_documents(given, note, limits)
    items = [given] if isinstance(given, Document) else _items(given)
    rows = ((f"document {number}", _row(item, number)) for number, item in enumerate(items, start=1))
    return documents_of_rows(rows, note, "the documents given")


def skips() -> Skipped:
    """What is skipped, each told as a warning by the logger "modegraph"."""
    return Skipped(lambda line: LOG.warning("%s", redact(line)))


def _items(given: Any) -> Iterable[Any]:
    """The rows of a pandas or pyarrow table, the items of anything else."""
    if hasattr(given, "to_pylist"):
        return list(given.to_pylist())
    if hasattr(given, "itertuples"):
        return list(given.to_dict("records"))
    if isinstance(given, Iterable) and not isinstance(given, Mapping | bytes):
        return given
    raise UserError(f"documents of type {type(given).__name__}", EXPECTED, "wrap a single row in a list")


def _row(item: Any, number: int) -> Mapping[str, Any]:
    """An item as a row; what a table writes for a missing value is left out."""
    if isinstance(item, Document):
        return {"id": item.source, "title": item.title, "text": item.text, "metadata": dict(item.metadata)}
    for name in ("_asdict", "to_dict"):
        if hasattr(item, name):
            item = getattr(item, name)()
    if not isinstance(item, Mapping):
        raise UserError(f"document {number} is a {type(item).__name__}", EXPECTED, "give a mg.Document or a dict")
    return {key: item[key] for key in COLUMNS if key in item and not _is_missing(item[key])}


def _is_missing(value: Any) -> bool:
    """None, or NaN."""
    return value is None or (isinstance(value, float) and math.isnan(value))
