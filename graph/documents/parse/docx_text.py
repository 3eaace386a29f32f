"""The text of a Word document: paragraphs, headings, lists and tables in order, then its footnotes and endnotes.

python-docx opens the package, but its paragraphs lack content controls, text boxes and tracked insertions, so this module walks the
elements themselves (ECMA-376-1 §17). Deleted text, comments, headers and footers are omitted.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from io import BytesIO
from typing import Any

from docx.opc.constants import RELATIONSHIP_TYPE
from docx.opc.package import OpcPackage
from docx.oxml import parse_xml

from graph.documents.parse.archive import MC, check_office
from graph.documents.parse.formats import ParsedFile
from graph.documents.parse.plain import (
    APART,
    LOWERED,
    MAX_REPEATED,
    PART,
    PART_END,
    RAISED,
    join_blocks,
    resolve_marks,
    table_row,
)

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
OMITTED = {W + "del", W + "moveFrom", W + "pPr", W + "rPr", W + "instrText", W + "delText", MC + "Fallback"}
BREAKS = {W + "tab": "\t", W + "br": "\n", W + "cr": "\n", W + "noBreakHyphen": "-"}
NUMBERING = f"{W}pPr/{W}numPr"
SUPERSCRIPT = f"{W}rPr/{W}vertAlign[@{W}val='superscript']"
MARKS = {
    M + "f": (APART, APART),
    M + "num": (PART, PART_END),
    M + "den": (PART, PART_END),
    M + "sup": (RAISED, LOWERED),
}
"""The marks before and after parts of an equation: a fraction, its parts, and an exponent."""
MAX_COLUMNS = 63
"""The maximum number of columns of a table in Word."""
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
            yield from _rows(child)
        elif child.tag not in OMITTED and isinstance(child.tag, str):
            yield from _blocks(child, marks)


def _rows(table: Any) -> Iterator[str]:
    """The rows; a cell's text, including that of nested tables, appears in each row and column that it spans, unless it is alone in its row.

    Of the columns of Word's grid, only those at which a cell begins count. After more than MAX_REPEATED repeated characters, nothing more is repeated.
    """
    rows = [list(_cells(row)) for row in _inner(table, W + "tr")]
    columns = sorted({start for row in rows for start, *_ in row})
    repeatable, above = MAX_REPEATED, dict[int, str]()
    for row in rows:
        texts, merged = dict[int, str](), dict[int, str]()
        for start, end, text, merge in row:
            first = bisect_left(columns, start)
            spanned = columns[first : first + 1 if len(row) == 1 else bisect_left(columns, end)]
            shown = above.get(start, text) if merge == "continue" else text
            repeatable -= (len(shown) + 3) * (len(spanned) - (merge != "continue"))
            texts |= dict.fromkeys(spanned, shown) if repeatable >= 0 else {start: text}
            merged |= dict.fromkeys(spanned if merge else (), shown)
        yield table_row(texts.get(column, "") for column in columns[: bisect_right(columns, max(texts, default=-1))])
        above = merged


def _cells(row: Any) -> Iterator[tuple[int, int, str, str]]:
    """Each cell: the grid columns at which it begins and ends, its text, and its vertical merge: "restart", "continue" or ""."""
    start = _number(row, f"{W}trPr/{W}gridBefore")
    for cell in _inner(row, W + "tc"):
        end = start + max(1, _number(cell, f"{W}tcPr/{W}gridSpan"))
        merge = cell.find(f"{W}tcPr/{W}vMerge")
        text = " ".join(_text(paragraph) for paragraph in _inner(cell, W + "p"))
        yield start, end, text, "" if merge is None else merge.get(W + "val", "continue")
        start = end


def _number(parent: Any, path: str) -> int:
    """The value of an element, at most MAX_COLUMNS; 0 if it is missing or not a number."""
    element = parent.find(path)
    value = "" if element is None else element.get(W + "val", "")
    return min(int(value[:9]), MAX_COLUMNS) if value.isdecimal() else 0


def _inner(parent: Any, tag: str) -> Iterator[Any]:
    """The outermost elements with this tag below another element."""
    for child in parent:
        if child.tag == tag:
            yield child
        elif child.tag not in OMITTED:
            yield from _inner(child, tag)


def _paragraph_text(paragraph: Any, marks: dict[str, str]) -> str:
    """A paragraph's text, as a Markdown heading or list item if it is one."""
    text = _text(paragraph).strip()
    style = paragraph.find(f"{W}pPr/{W}pStyle")
    mark = marks.get(style.get(W + "val"), "") if style is not None else ""
    mark = mark or "- " * (paragraph.find(NUMBERING) is not None)
    return mark + (" ".join(text.split()) if mark.startswith("#") else text) if text else ""


def _text(element: Any) -> str:
    """The text below an element; adjacent runs of superscript are one."""
    return resolve_marks("".join(_pieces(element)).replace(LOWERED + RAISED, ""))


def _pieces(element: Any) -> Iterator[str]:
    """The text below an element, with marks around superscripts and parts of fractions; text boxes are surrounded by line breaks."""
    for child in element:
        if child.tag in (W + "t", M + "t"):
            yield child.text or ""
        elif child.tag in BREAKS:
            yield BREAKS[child.tag]
        elif child.tag == W + "txbxContent":
            yield "\n" + join_blocks(_blocks(child, {})) + "\n"
        elif child.tag not in OMITTED:
            is_raised = child.tag == W + "r" and child.find(SUPERSCRIPT) is not None
            before, after = (RAISED, LOWERED) if is_raised else MARKS.get(child.tag, ("", ""))
            yield before
            yield from _pieces(child)
            yield after


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
