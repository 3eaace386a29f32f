"""The text layer of a PDF with its pages, the outline as headings in it, and the title that the file gives itself."""

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any

from pypdf import PdfReader

from graph.documents.parse.plain import check_count, joined, title_of, with_pages
from graph.documents.parse.types import Parsed
from graph.shared.errors import UserError

MAX_LEVEL = 6
"""Of a Markdown heading."""


def read(data: bytes, file: str) -> Parsed:
    """Title, text and pages; UserError naming `file` when it has no text (a scan) or too many pages."""
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    reader = PdfReader(BytesIO(data))
    check_count(len(reader.pages), "pages", file)
    pages = [page.extract_text().strip() for page in reader.pages]
    if not any(pages):
        found = f"{file}: {len(pages)} pages without text (a scan?)"
        raise UserError(found, "a PDF with a text layer", "run OCR on it or remove it")
    headings = _headings(reader)
    text, starts = with_pages([with_headings(page, headings.get(number, ())) for number, page in enumerate(pages)])
    title = str(reader.metadata.title or "").strip() if reader.metadata else ""
    return Parsed(title or title_of(text), text, starts)


def with_headings(page: str, headings: Sequence[str]) -> str:
    """A page with each heading in place of the line that says the same, or before the text where no line does.

    >>> with_headings("12\\n2 Wheels\\nThey turn.", ["# Mills", "## Wheels"])
    '# Mills\\n\\n12\\n\\n## Wheels\\n\\nThey turn.'
    """
    if not headings:
        return page
    lines = page.split("\n")
    rows = {letters: row for row, line in reversed(list(enumerate(lines))) if (letters := _letters(line))}
    above = []
    for heading in headings:
        row = rows.pop(_letters(heading), None)
        if row is None:
            above.append(heading)
        else:
            lines[row] = f"\n{heading}\n"
    blocks = "\n".join(lines).split("\n\n")
    return joined([*above, *blocks])


def _letters(line: str) -> str:
    """What tells a heading from others, whatever its number, its case and its spaces."""
    return "".join(filter(str.isalpha, line.casefold()))


def _headings(reader: PdfReader) -> Mapping[int, list[str]]:
    """The titles in the outline that lead to each page, counted from 0, as Markdown headings; none for a broken outline."""
    found: defaultdict[int, list[str]] = defaultdict(list)
    try:
        for level, entry in _entries(reader.outline, 1):
            number, title = reader.get_destination_page_number(entry), " ".join(str(entry.title).split())
            if number is not None and title:
                found[number].append(f"{'#' * min(level, MAX_LEVEL)} {title}")
    except Exception:  # noqa: BLE001  (an outline may be broken in any way there is; the text is worth having without it)
        return {}
    return found


def _entries(outline: Sequence[Any], level: int) -> Iterator[tuple[int, Any]]:
    """The entries of an outline, and how deep each lies; what lies below one follows it as a list."""
    for entry in outline:
        if isinstance(entry, list):
            yield from _entries(entry, level + 1)
        else:
            yield level, entry
