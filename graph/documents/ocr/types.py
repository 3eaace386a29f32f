"""How scanned pages are read, and how far. Nothing heavy is imported here: parse/ starts with it."""

from dataclasses import dataclass

from graph.shared.errors import UserError

TESSERACT = "tesseract"


@dataclass(frozen=True)
class Ocr:
    """Reading pages without text by tesseract: in these languages, at most so many of a file, each in so many seconds of work."""

    languages: str = "eng"
    """Its names for them, joined by +."""
    pages: int = 500
    page_seconds: float = 30.0


def ocr_by(program: str | None, languages: str, pages: int, page_seconds: float) -> Ocr | None:
    """The settings of a program by its name, None without one; UserError for any but tesseract.

    >>> ocr_by("tesseract", "eng+deu", 20, 30.0), ocr_by(None, "eng", 20, 30.0)
    (Ocr(languages='eng+deu', pages=20, page_seconds=30.0), None)
    """
    if program is None:
        return None
    if program != TESSERACT:
        raise UserError(f"ocr: {program!r}", TESSERACT, "name it, or leave it out")
    return Ocr(languages, pages, page_seconds)
