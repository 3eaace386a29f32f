"""File extensions, the modules that read files with them, the limits on reading, and the result of a reader.

To add a format, add a line to READERS and a module of that name to this folder. Nothing heavy is imported here, because the child process
imports this file when it starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graph.documents.parse.ocr import Ocr
from graph.errors import UserError

PLAIN = (".txt", ".md", ".markdown", ".rst", ".adoc", ".tex")
"""Extensions of text that is indexed unchanged, apart from the front matter of MARKDOWN."""
MARKDOWN = (".md", ".markdown")
TABLES = (".csv", ".tsv")
"""Extensions of text whose lines are table rows."""
_LANGUAGES = """
py python, js javascript, mjs javascript, jsx javascript, ts typescript, tsx typescript, java java, kt kotlin, scala scala, c c,
h c, cpp cpp, cc cpp, hpp cpp, cs csharp, go go, rs rust, rb ruby, php php, swift swift, r r, jl julia, lua lua, pl perl,
sh shell, ps1 powershell, sql sql, vue vue, proto protobuf, tf terraform
"""
LANGUAGES = {f".{extension}": language for extension, language in (pair.split() for pair in _LANGUAGES.split(","))}
"""Extensions of source code, which is indexed unchanged, and the `language` in its metadata."""
READERS = {
    ".html": "html_text",
    ".htm": "html_text",
    ".pdf": "pdf_text",
    ".docx": "docx_text",
    ".docm": "docx_text",
    ".pptx": "pptx_text",
    ".pptm": "pptx_text",
    ".xlsx": "xlsx_text",
    ".xlsm": "xlsx_text",
    ".epub": "epub_text",
    ".eml": "eml_text",
    ".ipynb": "ipynb_text",
}
"""Extensions of files that the child process reads, and the module in this folder whose `read` reads them."""
FRONT_MATTER = "front_matter"
"""The module with which the child process reads Markdown files that begin with metadata."""
SUFFIXES = (*PLAIN, *TABLES, *READERS, *LANGUAGES)
EXTENSIONS_SHOWN = ".txt, .md, .html, .pdf, .docx, .pptx, .xlsx, .csv, .epub, .eml, .ipynb, source code"
"""A short list of extensions for messages; SUFFIXES contains all of them."""


def missing_package(file: str, package: str) -> UserError:
    """The error for a file that cannot be read without a package that is not installed."""
    found = f"{file}: the package {package} is not installed"
    return UserError(found, "the extra `documents`", "pip install 'modegraph[documents]'")


MIB = 1 << 20
MAX_FILE_BYTES = 256 * MIB
MAX_PAGES = 10_000
"""The maximum number of pages of a PDF, slides of a presentation, sheets of a workbook, chapters of a book, parts of a message, cells of a
notebook."""
MAX_UNPACKED_BYTES = 256 * MIB
"""The maximum size of all parts of a ZIP archive together."""
MAX_PARTS = 20_000
"""The maximum number of parts of a ZIP archive."""


@dataclass(frozen=True)
class ParsedFile:
    """A file's contents: its title ("" if it has none), its text, and metadata for filters.

    For a file with pages, `page_starts` in the metadata contains the offsets of pages 1, 2, … in the text.
    """

    title: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    textless_pages: Sequence[int] = ()
    """The numbers, from 1, of pages without text, which may be scans."""
    image_pages: Sequence[int] = ()
    """The numbers of pages without text that have an image."""


@dataclass(frozen=True)
class Limits:
    """Limits for reading a file that is not plain text: processor seconds and memory, for files of up to 1 MiB; and settings for scans and web pages.

    >>> Limits().seconds_for(700), Limits().seconds_for(10 * MIB), Limits().memory_for(2 * MIB) // MIB
    (4.5, 45.0, 513)
    """

    seconds: float = 4.5
    memory_mb: int = 512
    ocr: Ocr | None = None
    """None for no OCR."""
    whole_pages: bool = False
    """Whether to read all of an HTML page instead of its main text."""

    def seconds_for(self, size: int) -> float:
        """Seconds for a file of `size` bytes: `seconds` up to 1 MiB, and `seconds` per MiB for a larger file."""
        return self.seconds * max(1.0, size / MIB)

    def memory_for(self, size: int) -> int:
        """Bytes of address space for a file of `size` bytes: the file is in memory, so bytes above 1 MiB are added."""
        return self.memory_mb * MIB + max(0, size - MIB)


@dataclass(frozen=True)
class ChildReport:
    """The outcome of one request: length of the reply, the fork's signal or exit code, processor seconds, peak MiB of memory.

    With OCR, the peak is that of all children so far.
    """

    bytes: int
    signal: int
    code: int
    cpu_s: float
    peak_mb: float
