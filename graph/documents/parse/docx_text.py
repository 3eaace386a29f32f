"""The text of a Word document: paragraphs, headings, lists and tables in order, then its footnotes and endnotes.

python-docx opens the package, but its paragraphs lack content controls, text boxes and tracked insertions, so this module walks the
elements themselves (ECMA-376-1 §17). Deleted text, comments, headers and footers are omitted.
"""

from collections.abc import Iterator
from io import BytesIO
from typing import Any

from docx.opc.constants import RELATIONSHIP_TYPE
from docx.opc.package import OpcPackage
from docx.oxml import parse_xml

from graph.documents.parse.archive import check_office
from graph.documents.parse.formats import ParsedFile
from graph.documents.parse.plain import join_blocks, table_row

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
OMITTED = {W + "del", W + "moveFrom", W + "pPr", W + "rPr", W + "instrText", W + "delText", MC + "Fallback"}
BREAKS = {W + "tab": "\t", W + "br": "\n", W + "cr": "\n", W + "noBreakHyphen": "-"}
NUMBERING = f"{W}pPr/{W}numPr"
NOTES = (RELATIONSHIP_TYPE.FOOTNOTES, RELATIONSHIP_TYPE.ENDNOTES)


def read(data: bytes, file: str) -> ParsedFile:
    """Title (the first paragraph in style Title or Heading 1, else the title in the file's properties) and text; no link is followed."""
    check_office(data, file)
    package = OpcPackage.open(BytesIO(data))
    main = package.main_document_part
    marks = _style_marks(_related(main, RELATIONSHIP_TYPE.STYLES))
    blocks = list(_blocks(_element(main).find(W + "body"), marks))
    for kind in NOTES:
        for note in _related(main, kind):
            if note.get(W + "type") is None:
                blocks += _blocks(note, marks)
    heading = next((block[2:] for block in blocks if block.startswith("# ")), "")
    return ParsedFile(heading or package.core_properties.title.strip(), join_blocks(blocks))


def _blocks(parent: Any, marks: dict[str, str]) -> Iterator[str]:
    """Every paragraph and table row below an element, in order."""
    for child in parent:
        if child.tag == W + "p":
            yield _paragraph_text(child, marks)
        elif child.tag == W + "tbl":
            yield from (table_row(_cells(row)) for row in _inner(child, W + "tr"))
        elif child.tag not in OMITTED and isinstance(child.tag, str):
            yield from _blocks(child, marks)


def _cells(row: Any) -> Iterator[str]:
    """The text of each cell, including the text of nested tables."""
    for cell in _inner(row, W + "tc"):
        yield " ".join("".join(_pieces(paragraph)) for paragraph in _inner(cell, W + "p"))


def _inner(parent: Any, tag: str) -> Iterator[Any]:
    """The outermost elements with this tag below another element."""
    for child in parent:
        if child.tag == tag:
            yield child
        elif child.tag not in OMITTED:
            yield from _inner(child, tag)


def _paragraph_text(paragraph: Any, marks: dict[str, str]) -> str:
    """A paragraph's text, as a Markdown heading or list item if it is one."""
    text = "".join(_pieces(paragraph)).strip()
    style = paragraph.find(f"{W}pPr/{W}pStyle")
    mark = marks.get(style.get(W + "val"), "") if style is not None else ""
    mark = mark or "- " * (paragraph.find(NUMBERING) is not None)
    return mark + (" ".join(text.split()) if mark.startswith("#") else text) if text else ""


def _pieces(element: Any) -> Iterator[str]:
    """The text below an element; text boxes are surrounded by line breaks."""
    for child in element:
        if child.tag in (W + "t", M + "t"):
            yield child.text or ""
        elif child.tag in BREAKS:
            yield BREAKS[child.tag]
        elif child.tag == W + "txbxContent":
            yield "\n" + join_blocks(_blocks(child, {})) + "\n"
        elif child.tag not in OMITTED:
            yield from _pieces(child)


def _style_marks(styles: Any) -> dict[str, str]:
    """The Markdown prefix by style id, from the styles' names (Word writes "heading 1" in every language) and numbering."""
    marks: dict[str, str] = {}
    for style in styles:
        name = style.find(W + "name")
        words = name.get(W + "val", "").lower().split() if name is not None else []
        if words == ["title"]:
            marks[style.get(W + "styleId")] = "# "
        elif len(words) == 2 and words[0] == "heading" and words[1] in "123456789":
            marks[style.get(W + "styleId")] = "#" * min(int(words[1]), 6) + " "
        elif style.find(NUMBERING) is not None:
            marks[style.get(W + "styleId")] = "- "
    return marks


def _related(part: Any, kind: str) -> Any:
    """The root element of the first part of a kind to which `part` has an internal relationship; () if there is none."""
    parts = [each.target_part for each in part.rels.values() if each.reltype == kind and not each.is_external]
    return _element(parts[0]) if parts else ()


def _element(part: Any) -> Any:
    return part.element if hasattr(part, "element") else parse_xml(part.blob)
