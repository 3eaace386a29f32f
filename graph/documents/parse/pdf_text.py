"""The text layer of a PDF with its pages, and the title that the file gives itself."""

import logging
from io import BytesIO

from pypdf import PdfReader

from graph.documents.parse.plain import check_count, title_of, with_pages
from graph.documents.parse.types import Parsed
from graph.shared.errors import UserError


def read(data: bytes, file: str) -> Parsed:
    """Title, text and pages; UserError naming `file` when it has no text (a scan) or too many pages."""
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    reader = PdfReader(BytesIO(data))
    check_count(len(reader.pages), "pages", file)
    text, pages = with_pages([page.extract_text().strip() for page in reader.pages])
    if not text:
        found = f"{file}: {len(reader.pages)} pages without text (a scan?)"
        raise UserError(found, "a PDF with a text layer", "run OCR on it or remove it")
    title = str(reader.metadata.title or "").strip() if reader.metadata else ""
    return Parsed(title or title_of(text), text, pages)
