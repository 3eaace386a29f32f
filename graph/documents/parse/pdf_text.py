"""The text layer of a PDF by page, with the outline as headings, and the title from the file's metadata."""

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any

from pypdf import PageObject, PdfReader

from graph.documents.parse.formats import ParsedFile
from graph.documents.parse.plain import check_count, title_of, with_headings, with_pages

MAX_LEVEL = 6
"""The deepest level of a Markdown heading."""


def read(data: bytes, file: str) -> ParsedFile:
    """Title, text and pages, which pages lack text, and which of those have an image; UserError naming `file` if it has too many pages."""
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    reader = PdfReader(BytesIO(data))
    check_count(len(reader.pages), "pages", file)
    pages = [page.extract_text().strip() for page in reader.pages]
    headings = _headings(reader)
    text, starts = with_pages([with_headings(page, headings.get(number, ())) for number, page in enumerate(pages)])
    title = str(reader.metadata.title or "").strip() if reader.metadata else ""
    textless_pages = [number for number, page in enumerate(pages, 1) if not page]
    image_pages = [number for number in textless_pages if _has_image(reader.pages[number - 1])]
    return ParsedFile(title or title_of(text), text, starts, textless_pages, image_pages)


def _has_image(page: PageObject) -> bool:
    try:
        objects = page["/Resources"]["/XObject"].values()
        return any(each.get_object()["/Subtype"] == "/Image" for each in objects)
    except Exception:  # noqa: BLE001  (a page without resources has no image; broken resources cannot be read)
        return False


def _headings(reader: PdfReader) -> Mapping[int, list[str]]:
    """The outline's entries for each page, counted from 0, as Markdown headings; none for a broken outline."""
    headings: defaultdict[int, list[str]] = defaultdict(list)
    try:
        for level, entry in _entries(reader.outline, 1):
            number, title = reader.get_destination_page_number(entry), " ".join(str(entry.title).split())
            if number is not None and title:
                headings[number].append(f"{'#' * min(level, MAX_LEVEL)} {title}")
    except Exception:  # noqa: BLE001  (an outline may be broken in any way; the text is useful without it)
        return {}
    return headings


def _entries(outline: Sequence[Any], level: int) -> Iterator[tuple[int, Any]]:
    """The entries of an outline with their levels; an entry's children follow it as a list."""
    for entry in outline:
        if isinstance(entry, list):
            yield from _entries(entry, level + 1)
        else:
            yield level, entry
