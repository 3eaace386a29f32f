"""PDFs whose pages are images of text, as a scanner makes them."""

import shutil
from collections.abc import Sequence
from io import BytesIO

import pytest
from PIL import Image, ImageDraw, ImageFont
from pypdf import PdfReader, PdfWriter

from tests.graph.documents.made import pdf_pages

DPI = 150
needs_tesseract = pytest.mark.skipif(
    shutil.which("tesseract") is None or shutil.which("pdftoppm") is None, reason="tesseract or pdftoppm is missing"
)


def scanned_pdf(texts: Sequence[str]) -> bytes:
    """An A5 page for each text, with an image of the text; "" makes an empty page."""
    images = []
    for text in texts:
        image = Image.new("L", (874, 1240), 255)
        ImageDraw.Draw(image).multiline_text((90, 100), text, fill=0, font=ImageFont.load_default(size=28))
        images.append(image)
    out = BytesIO()
    images[0].save(out, "PDF", save_all=True, append_images=images[1:], resolution=DPI)
    return out.getvalue()


def partly_scanned_pdf(text: str, scanned: str, heading: str) -> bytes:
    """A page with a text layer, then a scanned page to which an outline heading points."""
    writer = PdfWriter()
    for part in (pdf_pages([text]), scanned_pdf([scanned])):
        writer.append(PdfReader(BytesIO(part)))
    writer.add_outline_item(heading, 1)
    out = BytesIO()
    writer.write(out)
    return out.getvalue()
