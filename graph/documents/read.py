"""The first step: a folder of .txt/.md/.html/.pdf files, one such file, or a .jsonl, to documents.

Text is kept as it stands in .txt and .md files, so that offsets slice the file itself; of .html and .pdf the visible text
is kept, read in a process of its own (graph/parse/). Nothing here is skipped silently: what is no document is reported through `note`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from graph.documents.parse.plain import decode_text, title_of
from graph.documents.parse.types import Limits
from graph.documents.parse.worker import ParseWorker
from graph.shared.errors import UserError
from graph.shared.jsonl import read_jsonl
from graph.shared.types import Document

PLAIN = (".txt", ".md")
SUFFIXES = (*PLAIN, ".html", ".htm", ".pdf")
Note = Callable[[str], None]


def read_documents(source: Path | str, note: Note, limits: Limits = Limits()) -> Iterator[Document]:  # noqa: B008
    """Yield every document of `source`, in order of name or row; `note` gets a line for each file or row skipped.

    Raises UserError naming file (and line), what is wrong, and the remedy.
    """
    source = Path(source)
    with ParseWorker(limits) as worker:
        yield from _read_documents(source, note, worker)


def _read_documents(source: Path, note: Note, worker: ParseWorker) -> Iterator[Document]:
    if not source.exists():
        raise UserError(f"{source}: no such file or folder", "documents to index", "check the path")
    if source.is_dir():
        documents = _read_folder(source, note, worker)
    elif source.suffix == ".jsonl":
        documents = _documents_of_rows((f"{source} line {line}", row) for line, row in read_jsonl(source))
    else:
        documents = iter([_read_file(source, source.name, worker)])
    yield from _with_text(documents, note, str(source), f"files ending in {', '.join(SUFFIXES)} or a .jsonl")


def documents_of_rows(rows: Iterable[tuple[str, Mapping[str, Any]]], note: Note, told_as: str) -> Iterator[Document]:
    """Rows {id, title, text, metadata}, each with its place in words, as documents; notes and errors as of `read_documents`."""
    yield from _with_text(_documents_of_rows(rows), note, told_as, "rows with an id and a text")


def _with_text(documents: Iterable[Document], note: Note, told_as: str, expected: str) -> Iterator[Document]:
    found = False
    for document in documents:
        if not document.text.strip():
            note(f"{document.source}: empty, skipped")
            continue
        found = True
        yield document
    if not found:
        raise UserError(f"{told_as}: no documents", expected, "add some")


def _read_folder(folder: Path, note: Note, worker: ParseWorker) -> Iterator[Document]:
    root = folder.resolve()
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder).as_posix()
        if file.is_dir() or any(part.startswith(".") for part in file.relative_to(folder).parts):
            continue
        if file.suffix.lower() not in SUFFIXES:
            note(f"{name}: skipped, its ending is not one of {', '.join(SUFFIXES)}")
        elif not file.resolve().is_relative_to(root):
            note(f"{name}: skipped, a link that leads out of {folder}")
        else:
            yield _read_file(file, name, worker)


def _documents_of_rows(rows: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[Document]:
    places: dict[str, str] = {}
    for where, row in rows:
        for key in ("id", "text"):
            if not isinstance(row.get(key), str):
                raise UserError(f"{where}: {key!r} is {row.get(key)!r}", "a string", "every row needs an id and a text")
        title = row.get("title") or ""
        if not isinstance(title, str):
            raise UserError(f"{where}: 'title' is {title!r}", "a string", "fix the row")
        if row["id"] in places:
            raise UserError(
                f"{where}: id {row['id']!r} is also that of {places[row['id']]}", "unique ids", "rename one"
            )
        places[row["id"]] = where
        yield Document(row["id"], title, row["text"], _metadata(row.get("metadata") or {}, where))


def _metadata(found: object, where: str) -> dict[str, Any]:
    """What a row says of its document besides: {key: text, number, truth value, or a list of these}."""
    expected = "an object of texts, numbers, truth values or lists of these"
    if not isinstance(found, dict):
        raise UserError(f"{where}: 'metadata' is {found!r}", expected, "fix the row")
    for key, value in found.items():
        if key in ("source", "title"):
            raise UserError(
                f"{where}: metadata key {key!r}", "another name: that one is the document's own", "rename it"
            )
        parts = value if isinstance(value, list) else [value]
        if not all(isinstance(part, str | int | float | bool) for part in parts):
            raise UserError(f"{where}: metadata {key!r} is {value!r}", expected, "fix the row")
    return found


def _read_file(file: Path, name: str, worker: ParseWorker) -> Document:
    try:
        data = file.read_bytes()
    except OSError as problem:
        raise UserError(f"{file}: cannot be read ({problem.strerror})", "a readable file", "fix or remove it") from None
    return read_bytes(data, name, str(file), worker)


def read_bytes(data: bytes, name: str, told_as: str, worker: ParseWorker) -> Document:
    """The bytes of a file as a document called `name`; UserError naming `told_as` if they are not what its ending says."""
    path = Path(name)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise UserError(
            f"{told_as}: ending {suffix!r}", f"one of {', '.join(SUFFIXES)}, .jsonl", "convert or rename it"
        )
    if suffix in PLAIN:
        text = decode_text(data, told_as)
        return Document(name, title_of(text) or path.stem, text)
    parsed = worker.parse(data, suffix, told_as)
    return Document(name, parsed.title or path.stem, parsed.text)
