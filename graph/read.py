"""The first step of the road: a folder of .txt/.md/.html/.pdf files, one such file, or a .jsonl, to documents.

Text is kept as it stands in .txt and .md files, so that offsets slice the file itself; of .html and .pdf the visible text
is kept. Nothing here is skipped silently: what is no document is reported through `note`.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from graph.errors import UserError
from graph.jsonl import read_jsonl
from graph.types import Document

SUFFIXES = (".txt", ".md", ".html", ".htm", ".pdf")
MAX_TITLE_CHARS = 120
Note = Callable[[str], None]


def read_documents(source: Path, note: Note) -> Iterator[Document]:
    """Yield every document of `source`, in order of name or row; `note` gets a line for each file or row passed over.

    Raises UserError naming file (and line), what is wrong, and the remedy.
    """
    if not source.exists():
        raise UserError(f"{source}: no such file or folder", "documents to index", "check the path")
    if source.is_dir():
        documents = _read_folder(source, note)
    elif source.suffix == ".jsonl":
        documents = _read_rows(source)
    else:
        documents = iter([read_file(source, source.name)])
    found = False
    for document in documents:
        if not document.text.strip():
            note(f"{document.source}: empty, passed over")
            continue
        found = True
        yield document
    if not found:
        raise UserError(f"{source}: no documents", f"files ending in {', '.join(SUFFIXES)} or a .jsonl", "add some")


def _read_folder(folder: Path, note: Note) -> Iterator[Document]:
    root = folder.resolve()
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder).as_posix()
        if file.is_dir() or any(part.startswith(".") for part in file.relative_to(folder).parts):
            continue
        if file.suffix.lower() not in SUFFIXES:
            note(f"{name}: passed over, its ending is not one of {', '.join(SUFFIXES)}")
        elif not file.resolve().is_relative_to(root):
            note(f"{name}: passed over, a link that leads out of {folder}")
        else:
            yield read_file(file, name)


def _read_rows(file: Path) -> Iterator[Document]:
    lines: dict[str, int] = {}
    for line, row in read_jsonl(file):
        where = f"{file} line {line}"
        for key in ("id", "text"):
            if not isinstance(row.get(key), str):
                raise UserError(f"{where}: {key!r} is {row.get(key)!r}", "a string", "every row needs an id and a text")
        title = row.get("title") or ""
        if not isinstance(title, str):
            raise UserError(f"{where}: 'title' is {title!r}", "a string", "mend the row")
        if row["id"] in lines:
            raise UserError(
                f"{where}: id {row['id']!r} stands on line {lines[row['id']]} too", "unique ids", "rename one"
            )
        lines[row["id"]] = line
        yield Document(row["id"], title, row["text"], _metadata(row.get("metadata") or {}, where))


def _metadata(found: object, where: str) -> dict[str, Any]:
    """What a row says of its document besides: {key: text, number, truth value, or a list of these}."""
    expected = "an object of texts, numbers, truth values or lists of these"
    if not isinstance(found, dict):
        raise UserError(f"{where}: 'metadata' is {found!r}", expected, "mend the row")
    for key, value in found.items():
        if key in ("source", "title"):
            raise UserError(
                f"{where}: metadata key {key!r}", "another name: that one is the document's own", "rename it"
            )
        parts = value if isinstance(value, list) else [value]
        if not all(isinstance(part, str | int | float | bool) for part in parts):
            raise UserError(f"{where}: metadata {key!r} is {value!r}", expected, "mend the row")
    return found


def read_file(file: Path, name: str) -> Document:
    """One file as a document called `name`; UserError if it cannot be read as what its ending says."""
    suffix = file.suffix.lower()
    if suffix not in SUFFIXES:
        raise UserError(f"{file}: ending {suffix!r}", f"one of {', '.join(SUFFIXES)}, .jsonl", "convert or rename it")
    if suffix == ".pdf":
        return _read_pdf(file, name)
    text = decode_text(file)
    if suffix in (".html", ".htm"):
        return _read_html(text, file, name)
    return Document(name, title_of(text, file.stem), text)


def decode_text(file: Path) -> str:
    """The UTF-8 text of a file (a byte-order mark is dropped); UserError for other encodings and for binary files."""
    data = file.read_bytes()
    if b"\0" in data:
        raise UserError(
            f"{file}: byte 0x00 at offset {data.index(0):,} (a binary file)", "UTF-8 text", "convert or remove the file"
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise UserError(
            f"{file}: byte {data[problem.start]:#04x} at offset {problem.start:,} is not UTF-8",
            "UTF-8 text",
            f"convert it, for example: iconv -f latin1 -t utf-8 {file}",
        ) from None


def title_of(text: str, otherwise: str) -> str:
    """A first-line Markdown heading, or a short first line above an empty one; else `otherwise`.

    >>> title_of("# The Lantern\\nA ferry.", "lantern"), title_of("Tides\\n\\nHigh at noon.", "t"), title_of("A ferry.", "f")
    ('The Lantern', 'Tides', 'f')
    """
    lines = text.lstrip("\n\r").splitlines()
    if not lines:
        return otherwise
    first = lines[0].strip()
    if first.startswith("#") and first.strip("# "):
        return first.strip("# ")
    stands_alone = len(lines) > 1 and not lines[1].strip()
    return first if stands_alone and 0 < len(first) <= MAX_TITLE_CHARS else otherwise


def _read_html(markup: str, file: Path, name: str) -> Document:
    from bs4 import BeautifulSoup

    page = BeautifulSoup(markup, "html.parser")
    heading = page.find("title") or page.find("h1")
    title = " ".join(heading.get_text(" ").split()) if heading else ""
    for unseen in page.find_all(["head", "script", "style", "noscript", "template"]):
        unseen.decompose()
    for row in page.find_all("tr"):
        cells = [" ".join(cell.get_text(" ").split()) for cell in row.find_all(["th", "td"])]
        row.replace_with("| " + " | ".join(cells) + " |\n")
    for line_break in page.find_all("br"):
        line_break.replace_with("\n")
    for block in page.find_all(
        ["p", "div", "section", "article", "li", "table", "ul", "ol", *(f"h{n}" for n in range(1, 7))]
    ):
        block.append("\n\n" if block.name != "li" else "\n")
    lines = [" ".join(line.split()) for line in page.get_text().splitlines()]
    text = "\n".join(line for line, before in zip(lines, ["", *lines], strict=False) if line or before).strip()
    return Document(name, title or file.stem, text)


def _read_pdf(file: Path, name: str) -> Document:
    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    try:
        reader = PdfReader(file)
        pages = [page.extract_text() for page in reader.pages]
        title = str(reader.metadata.title or "") if reader.metadata else ""
    except (PyPdfError, ValueError, KeyError, OSError) as problem:
        raise UserError(
            f"{file}: not a readable PDF ({problem})", "an unencrypted PDF", "repair or remove it"
        ) from None
    text = "\n\n".join(page.strip() for page in pages if page.strip())
    if not text:
        raise UserError(
            f"{file}: {len(pages)} pages without text", "a PDF with a text layer", "run OCR on it or remove it"
        )
    return Document(name, title.strip() or title_of(text, file.stem), text)
