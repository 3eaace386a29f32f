"""What calls accept: documents of any kind (a path, documents, rows, a table), a model (a SPEC, a run, or one that is open), and whether to show progress.

Progress is shown only to who asks for it; otherwise lines go to the logger "modegraph"."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias

from graph.documents.parse.formats import Limits
from graph.documents.read import Note, SkipLog, documents_of_rows, read_documents
from graph.errors import UserError, redact
from graph.shared.console import LOG, quiet
from graph.types import Document, LanguageModel
from modegraph.runs import Run

Documents: TypeAlias = "str | Path | Document | Iterable[Document | Mapping[str, Any] | Any]"
"""A folder, a file, a `.jsonl`; or documents and rows with `id`, `text` and, if there are, `title` and `metadata`."""
EXPECTED_DOCUMENTS = "a path, documents, or rows with an id and a text"
DOCUMENT_COLUMNS = ("id", "title", "text", "metadata")


def documents_of(given: Documents, limits: Limits, note: Note) -> Iterator[Document]:
    """The documents, one after another; `note` hears what is skipped. UserError for one that is none, and when there are none at all."""
    if isinstance(given, str | Path):
        return read_documents(given, note, limits)
    items = [given] if isinstance(given, Document) else _table_rows(given)
    rows = ((f"document {number}", _document_row(item, number)) for number, item in enumerate(items, start=1))
    return documents_of_rows(rows, note, "the documents given")


def log_skipped() -> SkipLog:
    """What is skipped, each told as a warning by the logger "modegraph"."""
    return SkipLog(lambda line: LOG.warning("%s", redact(line)))


def _table_rows(given: Any) -> Iterable[Any]:
    """The rows of a pandas or pyarrow table, the items of anything else."""
    if hasattr(given, "to_pylist"):
        return list(given.to_pylist())
    if hasattr(given, "itertuples"):
        return list(given.to_dict("records"))
    if isinstance(given, Iterable) and not isinstance(given, Mapping | bytes):
        return given
    raise UserError(f"documents of type {type(given).__name__}", EXPECTED_DOCUMENTS, "wrap a single row in a list")


def _document_row(item: Any, number: int) -> Mapping[str, Any]:
    """An item as a row; what a table writes for a missing value is left out."""
    if isinstance(item, Document):
        return {"id": item.source, "title": item.title, "text": item.text, "metadata": dict(item.metadata)}
    for name in ("_asdict", "to_dict"):
        if hasattr(item, name):
            item = getattr(item, name)()
    if not isinstance(item, Mapping):
        raise UserError(
            f"document {number} is a {type(item).__name__}", EXPECTED_DOCUMENTS, "give a mg.Document or a dict"
        )
    return {key: item[key] for key in DOCUMENT_COLUMNS if key in item and not _is_missing(item[key])}


def _is_missing(value: Any) -> bool:
    """None, or NaN."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def show_progress(progress: bool) -> AbstractContextManager[None]:
    """Within the block the functions below talk as they do to a person at a terminal, or not at all."""
    return nullcontext() if progress else quiet()


Model: TypeAlias = "str | Run | LanguageModel"
"""`hf:PATH_OR_NAME`, `openai:NAME@URL`, a finished run, or what `open_model` returned."""


def open_model(model: str | Run) -> LanguageModel:
    """Open a model, to be given to several calls; UserError for one that cannot be had."""
    from serve.engines import open_model as open_engine

    return open_engine(spec_of(model))


def spec_of(model: str | Run) -> str:
    """A run's folder as a SPEC; a SPEC as it stands."""
    return model if isinstance(model, str) else f"hf:{model.folder}"


class _LastModel:
    """The model that was opened last, so that a loop of questions loads it once; one is held at a time."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._key: tuple[str, int] | None = None
        self._model: LanguageModel | None = None

    def get(self, model: str | Run) -> LanguageModel:
        spec = spec_of(model)
        with self._lock:
            key = (spec, _changed_ns(spec))
            if self._model is None or self._key != key:
                self._model = None
                self._model, self._key = open_model(spec), key
            return self._model


LAST_MODEL = _LastModel()


def model_of(model: Model) -> LanguageModel:
    """The model to ask; one that is named is opened, and kept until another one is named."""
    return LAST_MODEL.get(model) if isinstance(model, str | Run) else model


def _changed_ns(spec: str) -> int:
    """When the folder of a model was last changed; 0 for what is no folder."""
    folder = Path(spec.partition(":")[2]).expanduser()
    return folder.stat().st_mtime_ns if folder.is_dir() else 0
