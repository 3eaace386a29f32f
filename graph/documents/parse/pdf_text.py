"""The text layer of a PDF, page by page, and the title that the file gives itself."""

import logging
from io import BytesIO

from graph.documents.parse.plain import title_of
from graph.documents.parse.types import Parsed
from graph.shared.errors import UserError


def pdf_text(data: bytes, file: str) -> Parsed:
    """Title and text; UserError naming `file` when it is broken, encrypted or has no text."""
    from pypdf import PdfReader

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        reader = PdfReader(BytesIO(data))
        pages = [page.extract_text().strip() for page in reader.pages]
        title = str(reader.metadata.title or "").strip() if reader.metadata else ""
    except (MemoryError, RecursionError):
        raise
    except Exception as problem:  # noqa: BLE001  (a broken file makes the parser fail in any way there is)
        found = f"{file}: not a readable PDF ({str(problem) or type(problem).__name__})"
        raise UserError(found, "an unencrypted PDF", "repair or remove it") from None
    text = "\n\n".join(page for page in pages if page)
    if not text:
        raise UserError(
            f"{file}: {len(pages)} pages without text", "a PDF with a text layer", "run OCR on it or remove it"
        )
    return Parsed(title or title_of(text), text)
