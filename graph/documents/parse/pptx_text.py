"""The text of a presentation, one page per slide: its title, text, tables and notes."""

from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import Any

from pptx import Presentation
from pptx.oxml.ns import qn

from graph.documents.parse.archive import MC, check_office
from graph.documents.parse.formats import ParsedFile
from graph.documents.parse.plain import check_count, join_blocks, table_row, with_pages

SHAPES = {qn(f"p:{name}") for name in ("sp", "grpSp", "graphicFrame", "pic", "cxnSp")}
"""The elements that python-pptx reads as shapes."""


def read(data: bytes, file: str) -> ParsedFile:
    """The title (of the first slide that has one, else from the file's properties) and the text with pages, without images, charts and diagrams."""
    check_office(data, file)
    presentation = Presentation(BytesIO(data))
    check_count(len(presentation.slides), "slides", file)
    slides = [_slide(slide) for slide in presentation.slides]
    text, pages = with_pages([text for _, text in slides])
    title = next((heading for heading, _ in slides if heading), "")
    return ParsedFile(title or (presentation.core_properties.title or "").strip(), text, pages)


def _slide(slide: Any) -> tuple[str, str]:
    """A slide's title, or "", and its text. Of alternative shapes, which python-pptx leaves out, the first that it can read are read."""
    for alternatives in list(slide.shapes.element.iter(f"{MC}AlternateContent")):
        choices = ([shape for shape in choice if shape.tag in SHAPES] for choice in alternatives)
        for shape in next(filter(None, choices), ()):
            alternatives.addprevious(shape)
    title = slide.shapes.title
    heading = " ".join(title.text_frame.text.split()) if title is not None else ""
    others = (shape for shape in slide.shapes if title is None or shape.shape_id != title.shape_id)
    notes = slide.notes_slide.notes_text_frame if slide.has_notes_slide else None
    notes_line = f"Notes: {notes.text}" if notes and notes.text else ""
    return heading, join_blocks([f"# {heading}" if heading else "", *_blocks(others), notes_line])


def _blocks(shapes: Iterable[Any]) -> Iterator[str]:
    """Paragraphs and table rows, including those of grouped shapes, in order."""
    for shape in shapes:
        if hasattr(shape, "shapes"):
            yield from _blocks(shape.shapes)
        elif shape.has_text_frame:
            yield from (paragraph.text.replace("\v", "\n") for paragraph in shape.text_frame.paragraphs)
        elif getattr(shape, "has_table", False):
            for row in shape.table.rows:
                yield table_row(cell.text for cell in row.cells)
            yield ""
