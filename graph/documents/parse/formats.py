"""Which endings are read, by which module, within which limits, and what a reader returns.

A new format is a line in READERS and a file of that name beside this one. Nothing heavy is imported here: the child process starts with it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graph.documents.parse.ocr import Ocr

PLAIN = (".txt", ".md", ".markdown", ".rst", ".adoc", ".tex")
"""Text that is kept as it stands."""
MARKDOWN = (".md", ".markdown")
TABLES = (".csv", ".tsv")
"""Text whose lines are rows of a table."""
LANGUAGES = {
    ".py": "python",
    ".js": "javascript",
    ".mjs": "javascript",
    ".jsx": "javascript",
    ".ts": "typescript",
    ".tsx": "typescript",
    ".java": "java",
    ".kt": "kotlin",
    ".scala": "scala",
    ".c": "c",
    ".h": "c",
    ".cpp": "cpp",
    ".cc": "cpp",
    ".hpp": "cpp",
    ".cs": "csharp",
    ".go": "go",
    ".rs": "rust",
    ".rb": "ruby",
    ".php": "php",
    ".swift": "swift",
    ".r": "r",
    ".jl": "julia",
    ".lua": "lua",
    ".pl": "perl",
    ".sh": "shell",
    ".ps1": "powershell",
    ".sql": "sql",
    ".vue": "vue",
    ".proto": "protobuf",
    ".tf": "terraform",
}
"""Source code, kept as it stands, and the `language` in its metadata."""
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
"""Files that a process with limits reads: the module beside this one, and the function in it, that does."""
FRONT_MATTER = "front_matter"
"""What that process reads of a Markdown file that begins with metadata."""
SUFFIXES = (*PLAIN, *TABLES, *READERS, *LANGUAGES)
ENDINGS_SHOWN = ".txt, .md, .html, .pdf, .docx, .pptx, .xlsx, .csv, .epub, .eml, .ipynb, source code"
"""The endings in short, for messages; docs/guide.md lists all."""


MIB = 1 << 20
MAX_FILE_BYTES = 256 * MIB
MAX_PAGES = 10_000
"""Of a PDF; slides of a presentation, sheets of a workbook, chapters of a book, parts of a message, cells of a notebook."""
MAX_UNPACKED_BYTES = 256 * MIB
"""What the parts of a file that is a ZIP archive may be together."""
MAX_PARTS = 20_000
"""How many parts such a file may have."""


@dataclass(frozen=True)
class ParsedFile:
    """What a file holds: its own title ("" when it has none), its text, and metadata for filters.

    Of a file with pages, `page_starts` in the metadata are the places in the text at which page 1, 2, … begin.
    """

    title: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    textless: Sequence[int] = ()
    """The pages, counted from 1, that have no text and may be scans."""


@dataclass(frozen=True)
class Limits:
    """What reading one file that is not plain text may take: processor seconds and memory, for files of up to 1 MiB; and how scans and pages are read.

    >>> Limits().seconds_for(700), Limits().seconds_for(10 * MIB), Limits().memory_for(2 * MIB) // MIB
    (4.5, 45.0, 513)
    """

    seconds: float = 4.5
    memory_mb: int = 512
    ocr: Ocr | None = None
    """None: not at all."""
    whole_pages: bool = False
    """Whether what stands around the main text of an HTML page is read too."""

    def seconds_for(self, size: int) -> float:
        """Seconds for a file of `size` bytes: in proportion, from 1 MiB on."""
        return self.seconds * max(1.0, size / MIB)

    def memory_for(self, size: int) -> int:
        """Bytes of address space for a file of `size` bytes: what exceeds 1 MiB comes on top, as it is held whole."""
        return self.memory_mb * MIB + max(0, size - MIB)


@dataclass(frozen=True)
class ChildReport:
    """How the reading of one file ended: length of the answer, the fork's signal or exit code, processor seconds, peak memory."""

    bytes: int
    signal: int
    code: int
    cpu_s: float
    peak_mb: float
