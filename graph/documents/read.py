"""The first step of indexing: reads documents from a folder, a file, or the rows of a .jsonl file. parse/formats.py lists the formats; a file named
`.modegraphignore` lists files to exclude.

Plain text and source code stay unchanged, so that offsets apply to the file itself (after its front matter, if any); CSV and TSV become Markdown
rows; other formats are read in a child process (sandbox.py). Only hidden and ignored files are skipped silently:
`note` gets the name of every other skipped file or page, and the reason."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graph.documents.parse.formats import (
    EXTENSIONS_SHOWN,
    LANGUAGES,
    MARKDOWN,
    MAX_FILE_BYTES,
    MIB,
    PLAIN,
    SUFFIXES,
    TABLES,
    Limits,
    missing_package,
)
from graph.documents.parse.plain import begins_with_front_matter, clean, decode_text, table_text, title_of
from graph.documents.sandbox import ParseWorker
from graph.errors import UserError
from graph.shared.jsonl import read_jsonl
from graph.types import Document

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec


IGNORE_FILE = ".modegraphignore"


def files_in(folder: Path, rules: tuple[tuple[Path, GitIgnoreSpec], ...] = ()) -> Iterator[Path]:
    """The files below `folder` in order of name, without hidden and ignored ones; `rules` are the ignore rules of the folders above.

    For a link to a folder and for an unreadable folder, the path itself is yielded, not its files.
    """
    try:
        entries = sorted(folder.iterdir())
        has_rules = (folder / IGNORE_FILE).is_file()
    except OSError:
        yield folder
        return
    if has_rules:
        rules = (*rules, (folder, _rules(folder / IGNORE_FILE)))
    for entry in entries:
        is_folder = not entry.is_symlink() and entry.is_dir()
        if entry.name.startswith(".") or _is_ignored(entry, is_folder, rules):
            continue
        if is_folder:
            yield from files_in(entry, rules)
        else:
            yield entry


def _is_ignored(entry: Path, is_folder: bool, rules: tuple[tuple[Path, GitIgnoreSpec], ...]) -> bool:
    for folder, spec in reversed(rules):
        include = spec.check_file(entry.relative_to(folder).as_posix() + "/" * is_folder).include
        if include is not None:
            return include
    return False


def _rules(file: Path) -> GitIgnoreSpec:
    try:
        from pathspec import GitIgnoreSpec
    except ModuleNotFoundError:
        raise missing_package(str(file), "pathspec") from None
    lines = []
    for line in decode_text(_bytes_of(file), str(file)).splitlines():
        with suppress(ValueError, re.error):  # As in git, an invalid line, such as "!" or "[z-a]", matches nothing.
            GitIgnoreSpec.from_lines([line])
            lines.append(line)
    return GitIgnoreSpec.from_lines(lines)


Note = Callable[[str], None]


class SkipLog:
    """A `note` that collects each line in `lines` and passes it on to another `note`."""

    def __init__(self, note: Note) -> None:
        self.lines: list[str] = []
        self._note = note

    def __call__(self, line: str) -> None:
        self.lines.append(line)
        self._note(line)


def read_documents(source: Path | str, note: Note, limits: Limits = Limits()) -> Iterator[Document]:  # noqa: B008
    """Yield every document of `source`, in order of name or row; `note` gets a line for each skipped file and for each empty row.

    An unreadable file in a folder is skipped. Raises UserError with the file (and line), the problem and the remedy if `source` does not exist or is
    itself an unreadable file, for a malformed row, and if there are no documents.
    """
    source = Path(source)
    with ParseWorker(limits, note) as worker:
        try:
            is_missing = not source.exists()
        except OSError as problem:
            found = f"{source}: cannot be read ({problem.strerror})"
            raise UserError(found, "documents to index", "make it readable") from None
        if is_missing:
            raise UserError(f"{source}: no such file or folder", "documents to index", "check the path")
        if source.is_dir():
            documents = _read_files(source, files_in(source), note, worker)
        elif source.suffix.lower() == ".jsonl":
            documents = _documents_of_rows((f"{source} line {line}", row) for line, row in read_jsonl(source))
        elif _printable_name(source.name) != source.name:
            raise UserError(f"{_printable_name(str(source))}: its name is not UTF-8", "", "rename it")
        else:
            documents = iter([_read_file(source, source.name, worker)])
        yield from _at_least_one(documents, note, str(source), f"files ending in {EXTENSIONS_SHOWN}, or a .jsonl")


def present_in(source: Path) -> Callable[[str], bool]:
    """A function that returns whether `source` contains a document of a given name; its first call lists `source`.

    Every file counts as present, even if it cannot be read, and so does every name below a link to a folder or an unreadable folder.
    """

    @cache
    def found() -> tuple[set[str], tuple[str, ...]]:
        if not source.is_dir():
            rows = read_jsonl(source) if source.suffix.lower() == ".jsonl" else ()
            return {str(row["id"]) for _, row in rows} or {source.name}, ()
        names = {file: file.relative_to(source).as_posix() for file in files_in(source)}
        return set(names.values()), tuple(f"{name}/" for file, name in names.items() if file.is_dir())

    return lambda name: name in found()[0] or name.startswith(found()[1])


def read_some(folder: Path, names: Iterable[str], note: Note, limits: Limits) -> Iterator[Document]:
    """The documents in the named files of a folder; `note` gets a line for each file skipped."""
    with ParseWorker(limits, note) as worker:
        yield from _with_text(_read_files(folder, (folder / name for name in names), note, worker), note)


def documents_of_rows(rows: Iterable[tuple[str, Mapping[str, Any]]], note: Note, source: str) -> Iterator[Document]:
    """Documents from rows {id, title, text, metadata}, each with its location for errors; notes and errors as in `read_documents`."""
    yield from _at_least_one(_documents_of_rows(rows), note, source, "rows with an id and a text")


def _with_text(documents: Iterable[Document], note: Note) -> Iterator[Document]:
    for document in documents:
        if document.text.strip():
            yield document
        else:
            note(f"{document.source}: empty, skipped")


def _at_least_one(documents: Iterable[Document], note: Note, source: str, expected: str) -> Iterator[Document]:
    is_empty = True
    for document in _with_text(documents, note):
        is_empty = False
        yield document
    if is_empty:
        raise UserError(f"{source}: no documents", expected, "add some")


def _read_files(folder: Path, files: Iterable[Path], note: Note, worker: ParseWorker) -> Iterator[Document]:
    root = folder.resolve()
    for file in files:
        name = file.relative_to(folder).as_posix()
        if reason := _skip_reason(file, name, root):
            note(f"{_printable_name(name)}: skipped, {reason}")
            continue
        try:
            document = _read_file(file, name, worker)
        except UserError as problem:
            note(f"{name}: skipped, {str(problem).removeprefix(f'{file}: ')}")
        else:
            yield document


def _skip_reason(file: Path, name: str, root: Path) -> str:
    """The reason to skip a file of a folder; "" if it is not skipped."""
    try:
        if file.is_dir():
            return "a link to a folder" if file.is_symlink() else "a folder that cannot be read"
        if not file.is_file():
            return "not a file"
    except OSError as problem:
        return f"cannot be read ({problem.strerror})"
    if file.suffix.lower() not in SUFFIXES:
        return f"its extension is not one of {EXTENSIONS_SHOWN}"
    if not file.resolve().is_relative_to(root):
        return f"a link that leads out of {root}"
    return "" if _printable_name(name) == name else "its name is not UTF-8"


def _printable_name(name: str) -> str:
    return name.encode("utf-8", "replace").decode()


def _documents_of_rows(rows: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[Document]:
    where_of: dict[str, str] = {}
    for where, row in rows:
        for key in ("id", "text"):
            if not isinstance(row.get(key), str):
                raise UserError(f"{where}: {key!r} is {row.get(key)!r}", "a string", "give every row an id and a text")
        title = "" if row.get("title") is None else row["title"]
        if not isinstance(title, str):
            raise UserError(f"{where}: 'title' is {title!r}", "a string", "fix the row")
        if clean(row["id"]) != row["id"]:
            found = f"{where}: id {row['id']!r} contains NUL or half a character (a lone surrogate)"
            raise UserError(found, "whole characters other than NUL", "rename it")
        if row["id"] in where_of:
            found = f"{where}: id {row['id']!r} is also the id of {where_of[row['id']]}"
            raise UserError(found, "unique ids", "rename one")
        where_of[row["id"]] = where
        metadata = {} if row.get("metadata") is None else row["metadata"]
        yield Document(row["id"], clean(title), clean(row["text"]), clean(_metadata(metadata, where)))


def _metadata(value: object, where: str) -> dict[str, Any]:
    """The metadata of a row, checked: {key: string, number, boolean, or a list of these}."""
    expected = "an object of strings, numbers, booleans or lists of these"
    if not isinstance(value, dict):
        raise UserError(f"{where}: 'metadata' is {value!r}", expected, "fix the row")
    for key, item in value.items():
        if key in ("source", "title"):
            raise UserError(f"{where}: metadata key {key!r}", "a name other than source or title", "rename it")
        parts = item if isinstance(item, list) else [item]
        if not all(isinstance(part, str | int | float | bool) for part in parts):
            raise UserError(f"{where}: metadata {key!r} is {item!r}", expected, "fix the row")
    return value


def _read_file(file: Path, name: str, worker: ParseWorker) -> Document:
    return read_bytes(_bytes_of(file), name, str(file), worker)


def _bytes_of(file: Path) -> bytes:
    try:
        size = file.stat().st_size
        if size > MAX_FILE_BYTES:
            found = f"{file}: {size / MIB:,.0f} MiB"
            raise UserError(found, f"at most {MAX_FILE_BYTES // MIB:,} MiB", "split it, or convert it to .jsonl")
        return file.read_bytes()
    except OSError as problem:
        raise UserError(f"{file}: cannot be read ({problem.strerror})", "a readable file", "fix or remove it") from None


def read_bytes(data: bytes, name: str, source: str, worker: ParseWorker) -> Document:
    """The bytes of a file as the document `name`; UserError naming `source` for an unknown extension, or for bytes in another format."""
    path = Path(name)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise UserError(f"{source}: extension {suffix!r}", f"one of {EXTENSIONS_SHOWN}, .jsonl", "convert or rename it")
    if suffix in LANGUAGES:
        return Document(name, path.name, decode_text(data, source), {"language": LANGUAGES[suffix]})
    if suffix in TABLES:
        return Document(name, path.stem, table_text(decode_text(data, source), "\t" if suffix == ".tsv" else ""))
    if suffix in PLAIN:
        text = decode_text(data, source)
        if suffix not in MARKDOWN or not begins_with_front_matter(text):
            return Document(name, title_of(text) or path.stem, text)
    parsed = worker.parse(data, suffix, source)
    return Document(name, parsed.title or path.stem, parsed.text, parsed.metadata)
