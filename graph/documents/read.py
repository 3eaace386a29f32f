"""The first step: a folder, a file or a .jsonl to documents. parse/formats.py lists what is read, `.modegraphignore` files what is not.

Plain files and source code are kept as they stand, so that offsets slice the file itself (after front matter, if there is any); other formats
are read in a process of their own (sandbox.py). Nothing is skipped silently: `note` gets each file and the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graph.documents.parse.formats import (
    ENDINGS_SHOWN,
    LANGUAGES,
    MARKDOWN,
    MAX_FILE_BYTES,
    MIB,
    PLAIN,
    SUFFIXES,
    TABLES,
    Limits,
)
from graph.documents.parse.plain import begins_with_front_matter, decode_text, table_text, title_of
from graph.documents.sandbox import ParseWorker
from graph.errors import UserError
from graph.shared.jsonl import read_jsonl
from graph.types import Document

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec


IGNORE_FILE = ".modegraphignore"


def files_in(folder: Path) -> Iterator[Path]:
    """The files below `folder` in order of name, without hidden and ignored ones.

    A link to a folder is not followed, a folder that cannot be read not entered: it is given itself.
    """
    yield from _files_in(folder, ())


def _files_in(folder: Path, above: tuple[tuple[Path, GitIgnoreSpec], ...]) -> Iterator[Path]:
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        yield folder
        return
    rules = above
    if (own := folder / IGNORE_FILE).is_file():
        rules = (*above, (folder, _rules(own)))
    for entry in entries:
        is_folder = entry.is_dir() and not entry.is_symlink()
        if entry.name.startswith(".") or _ignored(entry, is_folder, rules):
            continue
        if is_folder:
            yield from _files_in(entry, rules)
        else:
            yield entry


def _ignored(entry: Path, is_folder: bool, rules: tuple[tuple[Path, GitIgnoreSpec], ...]) -> bool:
    for folder, spec in reversed(rules):
        said = spec.check_file(entry.relative_to(folder).as_posix() + "/" * is_folder).include
        if said is not None:
            return said
    return False


def _rules(file: Path) -> GitIgnoreSpec:
    try:
        from pathspec import GitIgnoreSpec
    except ModuleNotFoundError:
        found = f"{file}: the package pathspec is not installed"
        raise UserError(found, "the extra documents", "pip install 'modegraph[documents]'") from None
    return GitIgnoreSpec.from_lines(decode_text(file.read_bytes(), str(file)).splitlines())


Note = Callable[[str], None]


class SkipLog:
    """A `note` that passes each line on to `tell` and keeps it in `lines`."""

    def __init__(self, tell: Note) -> None:
        self.lines: list[str] = []
        self._tell = tell

    def __call__(self, line: str) -> None:
        self.lines.append(line)
        self._tell(line)


def read_documents(source: Path | str, note: Note, limits: Limits = Limits()) -> Iterator[Document]:  # noqa: B008
    """Yield every document of `source`, in order of name or row; `note` gets a line for each file or row skipped.

    A file of a folder that cannot be read is skipped. Raises UserError naming file (and line), what is wrong, and the remedy, for a
    source that is a file itself, and when no document is left.
    """
    source = Path(source)
    with ParseWorker(limits) as worker:
        yield from _read_documents(source, note, worker)


def read_some(folder: Path, names: Iterable[str], note: Note, limits: Limits = Limits()) -> Iterator[Document]:  # noqa: B008
    """Those documents of a folder that files of these names hold; `note` gets a line for each one skipped."""
    with ParseWorker(limits) as worker:
        for document in _read_files(folder, (folder / name for name in names), note, worker):
            if document.text.strip():
                yield document
            else:
                note(f"{document.source}: empty, skipped")


def _read_documents(source: Path, note: Note, worker: ParseWorker) -> Iterator[Document]:
    if not source.exists():
        raise UserError(f"{source}: no such file or folder", "documents to index", "check the path")
    if source.is_dir():
        documents = _read_files(source, files_in(source), note, worker)
    elif source.suffix == ".jsonl":
        documents = _documents_of_rows((f"{source} line {line}", row) for line, row in read_jsonl(source))
    else:
        documents = iter([_read_file(source, source.name, worker)])
    yield from _with_text(documents, note, str(source), f"files ending in {ENDINGS_SHOWN}, or a .jsonl")


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


def _read_files(folder: Path, files: Iterable[Path], note: Note, worker: ParseWorker) -> Iterator[Document]:
    root = folder.resolve()
    for file in files:
        name = file.relative_to(folder).as_posix()
        if reason := _no_document(file, name, root):
            note(f"{_printable_name(name)}: skipped, {reason}")
            continue
        try:
            document = _read_file(file, name, worker)
        except UserError as problem:
            note(f"{name}: skipped, {str(problem).removeprefix(f'{file}: ')}")
        else:
            yield document


def _no_document(file: Path, name: str, root: Path) -> str:
    """Why a file of a folder is none to be read, or ""."""
    if file.is_dir():
        return "a link to a folder" if file.is_symlink() else "a folder that cannot be read"
    if not file.is_file():
        return "not a file"
    if file.suffix.lower() not in SUFFIXES:
        return f"its ending is not one of {ENDINGS_SHOWN}"
    if not file.resolve().is_relative_to(root):
        return f"a link that leads out of {root}"
    return "" if _printable_name(name) == name else "its name is not UTF-8"


def _printable_name(name: str) -> str:
    return name.encode("utf-8", "replace").decode()


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
        size = file.stat().st_size
        if size > MAX_FILE_BYTES:
            found = f"{file}: {size / MIB:,.0f} MiB"
            raise UserError(found, f"at most {MAX_FILE_BYTES // MIB:,} MiB", "split it, or make a .jsonl of it")
        data = file.read_bytes()
    except OSError as problem:
        raise UserError(f"{file}: cannot be read ({problem.strerror})", "a readable file", "fix or remove it") from None
    return read_bytes(data, name, str(file), worker)


def read_bytes(data: bytes, name: str, told_as: str, worker: ParseWorker) -> Document:
    """The bytes of a file as a document called `name`; UserError naming `told_as` if they are not what its ending says."""
    path = Path(name)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise UserError(f"{told_as}: ending {suffix!r}", f"one of {ENDINGS_SHOWN}, .jsonl", "convert or rename it")
    if suffix in LANGUAGES:
        return Document(name, path.name, decode_text(data, told_as), {"language": LANGUAGES[suffix]})
    if suffix in TABLES:
        return Document(name, path.stem, table_text(decode_text(data, told_as)))
    if suffix in PLAIN:
        text = decode_text(data, told_as)
        if suffix not in MARKDOWN or not begins_with_front_matter(text):
            return Document(name, title_of(text) or path.stem, text)
    parsed = worker.parse(data, suffix, told_as)
    return Document(name, parsed.title or path.stem, parsed.text, parsed.metadata)
