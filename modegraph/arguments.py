"""The arguments of the public functions: documents in any form (a path, documents, rows, a table), a model (a SPEC, a run, or an open model),
and whether to show progress.

Progress is only shown on request; otherwise its lines go to the logger "modegraph". A missing package of an extra is a UserError."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any, Literal, TypeAlias

from packaging.requirements import Requirement

from graph.documents.parse.formats import Limits
from graph.documents.read import Note, SkipLog, documents_of_rows, read_documents
from graph.errors import UserError, redact
from graph.shared.console import LOG, quiet
from graph.types import Document, LanguageModel
from modegraph.runs import Run

Documents: TypeAlias = "str | Path | Document | Iterable[Document | Mapping[str, Any] | Any]"
"""A folder, a file or a `.jsonl`; or documents, rows or a table with `id`, `text` and optionally `title` and `metadata`."""
EXPECTED_DOCUMENTS = "a path, documents, or rows with an id and a text"
DOCUMENT_COLUMNS = ("id", "title", "text", "metadata")


def documents_of(documents: Documents, limits: Limits, note: Note) -> Iterator[Document]:
    """The documents, one at a time; `note` receives a line about each skipped document. UserError for an invalid document, or if there are no documents."""
    if isinstance(documents, str | Path):
        return read_documents(documents, note, limits)
    rows = ((f"document {number}", row) for number, row in enumerate(rows_of(documents), start=1))
    return documents_of_rows(rows, note, "the documents given")


def rows_of(documents: Documents) -> Iterator[Mapping[str, Any]]:
    """Documents, rows or a table as rows, one at a time, without the columns and the metadata whose value is missing; UserError for anything else."""
    items = [documents] if isinstance(documents, Document) else _table_rows(documents)
    return (_document_row(item, number) for number, item in enumerate(items, start=1))


def skip_log() -> SkipLog:
    """A log of skipped documents that also warns about each through the logger "modegraph"."""
    return SkipLog(lambda line: LOG.warning("%s", redact(line)))


def _table_rows(documents: Any) -> Iterable[Any]:
    """The rows of a pandas or pyarrow table, or the items of any other iterable."""
    if hasattr(documents, "to_pylist"):
        return list(documents.to_pylist())
    if hasattr(documents, "itertuples"):
        return list(documents.to_dict("records"))
    if isinstance(documents, Iterable) and not isinstance(documents, Mapping | bytes):
        return documents
    raise UserError(f"documents of type {type(documents).__name__}", EXPECTED_DOCUMENTS, "wrap a single row in a list")


def _document_row(item: Any, number: int) -> Mapping[str, Any]:
    if isinstance(item, Document):
        return {"id": item.source, "title": item.title, "text": item.text, "metadata": dict(item.metadata)}
    for name in ("_asdict", "to_dict"):
        if hasattr(item, name):
            item = getattr(item, name)()
    if not isinstance(item, Mapping):
        found = f"document {number} is a {type(item).__name__}"
        raise UserError(found, EXPECTED_DOCUMENTS, "give an mg.Document or a dict")
    row = _without_missing({key: item[key] for key in DOCUMENT_COLUMNS if key in item})
    metadata = row.get("metadata")
    return {**row, "metadata": _without_missing(metadata)} if isinstance(metadata, Mapping) else row


def _without_missing(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if not _is_missing(value)}


def _is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, or one of pandas' markers of a missing value."""
    missing = value is None or type(value).__name__ in ("NAType", "NaTType")
    return missing or (isinstance(value, float) and math.isnan(value))


INSTALLED_WITH = {"starlette": "fastapi"}
"""Packages that modegraph imports but that no extra lists, each with the listed package that requires it."""


def missing_extra(problem: ModuleNotFoundError) -> UserError | None:
    """The error that names the extra to which the missing package belongs; None if it belongs to none."""
    package = (problem.name or "").partition(".")[0]
    if (extra := extra_with(package)) is None:
        return None
    found = f"the package {package} is not installed"
    return UserError(found, f"the extra `{extra}`", f"pip install 'modegraph[{extra}]'")


def extra_with(package: str) -> str | None:
    """The first extra of modegraph that installs `package`, the name that is imported; None if there is none.

    >>> extra_with("peft"), extra_with("prometheus_client"), extra_with("starlette"), extra_with("numpy")
    ('train', 'serve', 'serve', None)
    """
    package = INSTALLED_WITH.get(package, package)
    for requirement in map(Requirement, requires("modegraph") or ()):
        if requirement.marker and requirement.name.replace("-", "_") == package:
            return str(requirement.marker).rpartition(" ")[2].strip('"')
    return None


@contextmanager
def public_call(progress: bool = False) -> Iterator[None]:
    """Within the block, log lines of progress instead of printing them, unless `progress` is true; UserError for a missing package of an extra."""
    with nullcontext() if progress else quiet():
        try:
            yield
        except ModuleNotFoundError as problem:
            raise (missing_extra(problem) or problem) from None


FrameKind: TypeAlias = Literal["pandas", "pyarrow"]


def frames_of(tables: Mapping[str, Any], kind: FrameKind) -> dict[str, Any]:
    """Arrow tables by name, as data frames if `kind` is "pandas"; UserError if pandas is not installed."""
    if kind == "pyarrow":
        return dict(tables)
    if find_spec("pandas") is None:
        remedy = 'pip install pandas, or use to_frames("pyarrow")'
        raise UserError("the package pandas is not installed", "pandas, for data frames", remedy)
    return {name: table.to_pandas() for name, table in tables.items()}


Model: TypeAlias = "str | Run | LanguageModel"
"""A SPEC such as `hf:PATH_OR_NAME`, a finished run, or an open model."""


def open_model(model: str | Run) -> LanguageModel:
    """Open a model for use in several calls; UserError for one that cannot be opened."""
    from serve.engines import open_model as open_engine

    with public_call():
        return open_engine(spec_of(model))


def spec_of(model: str | Run) -> str:
    """A run's folder as a SPEC; a SPEC is returned unchanged."""
    return model if isinstance(model, str) else f"hf:{model.folder}"


def plain(value: Any) -> Any:
    """The value of a setting with paths and runs as text, those inside mappings and lists included."""
    if isinstance(value, Path | Run):
        return str(value)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


_LAST_MODEL: dict[tuple[str, int], LanguageModel] = {}
"""The model opened last, so that a loop of questions loads it only once; only one model is in memory at a time."""
_LAST_MODEL_LOCK = Lock()


def model_of(model: Model) -> LanguageModel:
    """The open model. A SPEC or a run is opened, and stays open until another model is given, its folder changes or its server ends."""
    if not isinstance(model, str | Run):
        return model
    spec = spec_of(model)
    with _LAST_MODEL_LOCK:
        key = (spec, _changed_ns(spec))
        if key not in _LAST_MODEL or getattr(_LAST_MODEL[key], "has_exited", False):
            _LAST_MODEL.clear()
            _LAST_MODEL[key] = open_model(spec)
        return _LAST_MODEL[key]


def _changed_ns(spec: str) -> int:
    """When the model's folder was last modified, in nanoseconds; 0 if the SPEC names no folder."""
    target = spec.partition(":")[2]
    folder = Path(target).expanduser()
    return folder.stat().st_mtime_ns if target and folder.is_dir() else 0
