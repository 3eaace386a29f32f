"""Ordinary documents, written by the formats' own libraries, and hostile variants of them."""

import struct
from collections.abc import Callable, Iterable, Sequence
from copy import copy, deepcopy
from datetime import datetime
from email.message import EmailMessage
from io import BytesIO
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import docx
import nbformat
import openpyxl
import pptx
from docx.opc.constants import CONTENT_TYPE, RELATIONSHIP_TYPE
from docx.opc.packuri import PackURI
from docx.opc.part import Part
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls
from pypdf import PdfReader, PdfWriter

from benchmarks.hostile_files import MIB, pages, stream

WORD_NAMESPACE = nsdecls("w")
ROOT_RELATIONSHIPS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def bytes_of(document: Any) -> bytes:
    """The bytes that a library saves for a document."""
    out = BytesIO()
    document.save(out)
    return out.getvalue()


def docx_of(fill: Callable[[Any], None]) -> bytes:
    document = docx.Document()
    fill(document)
    return bytes_of(document)


def fill_report(document: Any) -> None:
    """Write headings, lists and a table with merged cells."""
    document.add_heading("Tide mills", 0)
    document.add_heading("Wheels", 1)
    document.add_paragraph("The wheel turns twice a day.")
    document.add_paragraph("oak", style="List Bullet")
    document.add_paragraph("iron", style="List Number")
    table = document.add_table(2, 3)
    for cell, text in zip(table._cells, ["Stop", "Fare", "Since", "Quill", "3\ntallens", "1911"], strict=True):
        cell.text = text
    table.cell(0, 1).merge(table.cell(0, 2))


def fill_uncommon_parts(document: Any) -> None:
    """Write parts that python-docx's own paragraphs leave out: a content control, a tracked change, a text box, a formula, a footnote; and a
    nested table.
    """
    math = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
    box = "<w:txbxContent><w:p><w:r><w:t>In a box.</w:t></w:r></w:p></w:txbxContent>"
    texts = (
        "<w:sdt {}><w:sdtContent><w:p><w:r><w:t>In a control.</w:t></w:r></w:p></w:sdtContent></w:sdt>",
        "<w:p {}><w:ins><w:r><w:t>Put in</w:t></w:r></w:ins><w:del><w:r><w:delText>out</w:delText></w:r></w:del></w:p>",
        "<w:p {}><w:r><w:t>Beside</w:t><w:pict>" + box + "</w:pict></w:r></w:p>",
        "<w:p {}><m:oMath><m:r><m:t>E=mc</m:t></m:r></m:oMath></w:p>",
    )
    for text in texts:
        document.element.body.insert(len(document.element.body) - 1, parse_xml(text.format(f"{WORD_NAMESPACE} {math}")))
    outer = document.add_table(1, 2)
    outer.cell(0, 0).text = "outer"
    inner = outer.cell(0, 1).add_table(1, 2)
    inner.cell(0, 0).text, inner.cell(0, 1).text = "in", "side"
    notes = (
        f"<w:footnotes {WORD_NAMESPACE}><w:footnote w:type='separator'><w:p><w:r><w:t>---</w:t></w:r></w:p></w:footnote>"
        "<w:footnote w:id='1'><w:p><w:r><w:t>At the foot.</w:t></w:r></w:p></w:footnote></w:footnotes>"
    )
    part = Part(PackURI("/word/footnotes.xml"), CONTENT_TYPE.WML_FOOTNOTES, notes.encode(), document.part.package)
    document.part.relate_to(part, RELATIONSHIP_TYPE.FOOTNOTES)


def fill_figures(document: Any) -> None:
    """Write superscripts, a formula with a fraction and an exponent, and tables with merged columns and rows."""
    paragraph = document.add_paragraph()
    for text in ("10", "^1", "^2", " kg, the 5", "^th", ", in 1911", "^2", "3, 10", "^-3", "."):
        run = paragraph.add_run(text.removeprefix("^"))
        run.font.superscript = text.startswith("^")
    math = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
    run, end = "<m:r><m:t>", "</m:t></m:r>"
    formula = (
        f"<w:p {WORD_NAMESPACE} {math}><m:oMath>{run}t=2{end}<m:f><m:num>{run}1{end}</m:num><m:den>{run}2{end}</m:den></m:f>"
        f"<m:f><m:num>{run}a+b{end}</m:num><m:den>{run}2{end}</m:den></m:f>{run}+10{end}<m:sSup><m:e/><m:sup>{run}6{end}</m:sup></m:sSup></m:oMath></w:p>"
    )
    document.element.body.insert(len(document.element.body) - 1, parse_xml(formula))
    for texts, (first, last) in (
        (["Day", "Opens", "Closes", "Monday", "Closed", "", "Tuesday", "9", "17"], ((1, 1), (1, 2))),
        (["Year", "Ship", "1911", "Lantern", "", "Tern"], ((1, 0), (2, 0))),
    ):
        table = document.add_table(3, len(texts) // 3)
        for cell, text in zip(table._cells, texts, strict=True):
            cell.text = text
        table.cell(*first).merge(table.cell(*last))
        document.add_paragraph("")


def fill_merged_cells(document: Any) -> None:
    """Write a table whose grid is finer than its columns, with merges that lack a value or a first cell."""
    rows = (
        [("<w:gridSpan w:val='2'/>", "Stop"), ("<w:gridSpan w:val='3'/>", "Fare")],
        [("<w:gridSpan w:val='2'/><w:vMerge/>", "Quay"), ("<w:gridSpan w:val='3'/><w:vMerge w:val='restart'/>", "3")],
        [("<w:gridSpan w:val='2'/>", "Mill"), ("<w:gridSpan w:val='3'/><w:vMerge/>", "")],
    )
    cells = [[f"<w:tc><w:tcPr>{marks}</w:tcPr>{_paragraph(text)}</w:tc>" for marks, text in row] for row in rows]
    cells.append(
        [f"<w:tc><w:tcPr><w:gridSpan{value}/></w:tcPr>{_paragraph('Tarn')}</w:tc>" for value in (" w:val='0'", "")]
    )
    cells[-1].insert(0, "<w:trPr><w:gridBefore w:val='2'/></w:trPr>")
    table = "".join(f"<w:tr>{''.join(row)}</w:tr>" for row in cells)
    document.element.body.insert(0, parse_xml(f"<w:tbl {WORD_NAMESPACE}>{table}</w:tbl>"))


def long_merged_cell(characters: int, rows: int) -> bytes:
    """A document with a long cell that spans many rows."""

    def fill(document: Any) -> None:
        first, others = (f"<w:vMerge{value}/>" for value in (" w:val='restart'", ""))
        row = "<w:tr><w:tc><w:tcPr>{}</w:tcPr>{}</w:tc></w:tr>"
        table = row.format(first, _paragraph("x" * characters)) + row.format(others, _paragraph("")) * rows
        document.element.body.insert(0, parse_xml(f"<w:tbl {WORD_NAMESPACE}>{table}</w:tbl>"))

    return docx_of(fill)


def _paragraph(text: str) -> str:
    return f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"


def presentation() -> bytes:
    """A slide with a title and text, an empty slide, and a slide with a title, a table, a group and notes."""
    deck = pptx.Presentation()
    first = deck.slides.add_slide(deck.slide_layouts[1])
    first.shapes.title.text = "Fares of the ferry"
    first.placeholders[1].text = "Three tallens\nBells are free"
    deck.slides.add_slide(deck.slide_layouts[6])
    third = deck.slides.add_slide(deck.slide_layouts[5])
    third.shapes.title.text = "Stops"
    table = third.shapes.add_table(2, 2, 0, 0, 99, 99).table
    for row, values in enumerate([["Stop", "Fare"], ["Quill", "3"]]):
        for column, value in enumerate(values):
            table.cell(row, column).text = value
    group = third.shapes.add_group_shape()
    group.shapes.add_textbox(0, 0, 9, 9).text_frame.text = "In a group."
    third.notes_slide.notes_text_frame.text = "Say it twice."
    return bytes_of(deck)


def untitled_presentation() -> bytes:
    """A slide without a title, whose text looks like a Markdown heading."""
    deck = pptx.Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[6])
    slide.shapes.add_textbox(0, 0, 9, 9).text_frame.text = "# of passengers: 3"
    return bytes_of(deck)


def alternative_presentation() -> bytes:
    """A slide with four texts: one without alternatives, one with a copy as fallback, and two that are the fallback of an empty choice and of ink."""
    deck = pptx.Presentation()
    shapes = deck.slides.add_slide(deck.slide_layouts[6]).shapes
    _, second, third, fourth = boxes = [shapes.add_textbox(0, 0, 9, 9) for _ in range(4)]
    for box, text in zip(boxes, ("One.", "Two.", "Three.", "Four."), strict=True):
        box.text_frame.text = text
    namespace = "http://schemas.openxmlformats.org/markup-compatibility/2006"
    ink = parse_xml('<p:contentPart xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main"/>')
    for box, choices in ((second, [second.element]), (third, []), (fourth, [ink])):
        markup = f'<mc:AlternateContent xmlns:mc="{namespace}"><mc:Choice/><mc:Fallback/></mc:AlternateContent>'
        alternatives = parse_xml(markup)
        box.element.addprevious(alternatives)
        alternatives[1].append(deepcopy(box.element) if box.element in choices else box.element)
        alternatives[0].extend(choices)
    return bytes_of(deck)


def workbook(fill: Callable[[Any], None]) -> bytes:
    book = openpyxl.Workbook()
    fill(book)
    return bytes_of(book)


def fill_prices(book: Any) -> None:
    """Write two sheets, one hidden, with text, numbers, a date, a boolean and gaps."""
    book.properties.title = "Fares 2026"
    sheet = book.active
    sheet.title = "Fares"
    for row in (
        ["Stop", "Fare", "Since", "Open"],
        ["Quill | quay", 0.1 + 0.2, datetime(1911, 5, 4), True],
        [],
        [None, 3.0],
    ):
        sheet.append(row)
    hidden = book.create_sheet("Old")
    hidden.append(["Tarn", 7])
    hidden.sheet_state = "hidden"


def with_parts(
    data: bytes, parts: dict[str, bytes], changed: Callable[[str, bytes], bytes] = lambda name, old: old
) -> bytes:
    """An archive with these parts added or replaced, and with the content `changed(name, content)` of every other part."""
    out = BytesIO()
    with ZipFile(BytesIO(data)) as old, ZipFile(out, "w", ZIP_DEFLATED) as new:
        for name in old.namelist():
            if name not in parts:
                new.writestr(name, changed(name, old.read(name)))
        for name, content in parts.items():
            new.writestr(name, content)
    return out.getvalue()


def with_macros(data: bytes, plain_type: str, macro_type: str, folder: str, file: str = "ran") -> bytes:
    """An Office file whose content type lets it run macros, with a macro that would create `file`."""

    def changed(name: str, content: bytes) -> bytes:
        return content.replace(plain_type.encode(), macro_type.encode()) if name == "[Content_Types].xml" else content

    return with_parts(
        data, {f"{folder}/vbaProject.bin": f'Sub AutoOpen()\nShell "touch {file}"\nEnd Sub'.encode()}, changed
    )


DOCX_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
DOCM_TYPE = "application/vnd.ms-word.document.macroEnabled.main+xml"
XLSX_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"
XLSM_TYPE = "application/vnd.ms-excel.sheet.macroEnabled.main+xml"
PPTX_TYPE = "application/vnd.openxmlformats-officedocument.presentationml.presentation.main+xml"
PPTM_TYPE = "application/vnd.ms-powerpoint.presentation.macroEnabled.main+xml"
CONTAINER = (
    b'<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    b'<rootfile full-path="OPS/book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
)


def epub(chapters: Sequence[str], declaration: str = "", more: dict[str, bytes] | None = None) -> bytes:
    """A book whose spine lists its files in reverse order."""
    items = "".join(
        f'<item id="c{n}" href="text/c%20{n}.xhtml" media-type="application/xhtml+xml"/>' for n in range(len(chapters))
    )
    spine = "".join(f'<itemref idref="c{n}"/>' for n in reversed(range(len(chapters))))
    opf = (
        '<?xml version="1.0"?>{}<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/">'
        "<metadata><dc:title>Salt and tide</dc:title></metadata><manifest>{}</manifest><spine>{}</spine></package>"
    )
    out = BytesIO()
    with ZipFile(out, "w", ZIP_DEFLATED) as book:
        book.writestr("mimetype", "application/epub+zip", ZIP_STORED)
        book.writestr("META-INF/container.xml", CONTAINER)
        book.writestr("OPS/book.opf", opf.format(declaration, items, spine))
        for number, chapter in enumerate(chapters):
            page = f"<!DOCTYPE html><html><head><title>x</title></head><body>{chapter}</body></html>"
            book.writestr(f"OPS/text/c {number}.xhtml", page)
        for name, content in (more or {}).items():
            book.writestr(name, content)
    return out.getvalue()


def message(body: str, html: str = "", charset: str = "utf-8", attached: Iterable[Any] = ()) -> bytes:
    mail = EmailMessage()
    mail["From"], mail["To"] = "Ada Marlow <ada@example.org>", "Zoë <zoe@example.org>"
    mail["Subject"], mail["Date"] = "Прилив at noon", "Mon, 02 Mar 2026 10:00:00 +0100"
    mail.set_content(body, charset=charset, cte="base64")
    if html:
        mail.add_alternative(html, subtype="html")
    for each in attached:
        if isinstance(each, EmailMessage):
            mail.add_attachment(each)
        else:
            mail.add_attachment(b"%PDF-1.7", maintype="application", subtype="pdf", filename=each)
    return mail.as_bytes()


def pictured_message(kind: str) -> bytes:
    """A message whose text, of a kind such as "plain", surrounds a picture; with two attached text files."""
    parts = (
        (f"text/{kind}", "", "Before the picture."),
        ("image/png", 'inline; filename="a.png"', "png"),
        (f"text/{kind}", "inline", "After it."),
        ("text/plain", 'inline; filename="b.txt"', "Not read."),
        ("text/html", "", "<p>At the end."),
        (f"text/{kind}", "attachment", "Not read."),
    )
    body = "".join(
        f"--b\nContent-Type: {content}\n{where and f'Content-Disposition: {where}'}\n\n{text}\n"
        for content, where, text in parts
    )
    return f'Subject: Wheels\nContent-Type: multipart/mixed; boundary="b"\n\n{body}--b--\n'.encode()


def deep_message(depth: int) -> bytes:
    """A message whose parts are nested `depth` levels deep."""
    text = b"".join(b'Content-Type: multipart/mixed; boundary="b%d"\n\n--b%d\n' % (n, n) for n in range(depth))
    return b"Subject: deep\n" + text + b"\nEnd."


def message_of_parts(count: int) -> bytes:
    """A message of `count` parts."""
    parts = b"".join(b"--b\nContent-Type: text/plain\n\nx\n" for _ in range(count))
    return b'Subject: many\nContent-Type: multipart/mixed; boundary="b"\n\n' + parts + b"--b--\n"


def notebook() -> bytes:
    book = nbformat.v4.new_notebook(
        metadata={"kernelspec": {"name": "python3", "language": "python", "display_name": "P"}}
    )
    output = nbformat.v4.new_output("stream", name="stdout", text="4 tides\n")
    picture = nbformat.v4.new_output("display_data", data={"image/png": "aGk=", "text/plain": "<Figure>"})
    book.cells = [
        nbformat.v4.new_markdown_cell("# Tides\n\nHow many?"),
        nbformat.v4.new_code_cell("print('```')\n2 + 2", outputs=[output, picture]),
        nbformat.v4.new_code_cell(""),
    ]
    return nbformat.writes(book).encode()


def old_notebook() -> bytes:
    from nbformat import v3

    cells = [v3.new_heading_cell("Salt", level=1), v3.new_code_cell("1 + 1", language="python")]
    return v3.writes_json(v3.new_notebook(worksheets=[v3.new_worksheet(cells=cells)])).encode()


def pdf_pages(texts: Sequence[str]) -> bytes:
    return pages([stream(f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET".encode() if text else b"") for text in texts])


def outlined_pdf(texts: Sequence[str], outline: Sequence[tuple[int, str, int | None]]) -> bytes:
    """A PDF whose outline has these entries: level, title and page of each (None: no target)."""
    writer = PdfWriter()
    writer.append(PdfReader(BytesIO(pdf_pages(texts))))
    above: list[Any] = [None]
    for level, title, page in outline:
        above[level:] = [writer.add_outline_item(title, page, above[level - 1])]
    out = BytesIO()
    writer.write(out)
    return out.getvalue()


def circular_outline() -> bytes:
    """A PDF whose only outline entry is its own successor and its own child, and has no title."""
    entry = b"<< /Parent 6 0 R /Next 7 0 R /First 7 0 R /Dest [0 0 R /Fit] >>"
    return pages(
        [stream(b"BT /F1 12 Tf 72 720 Td (One.) Tj ET")], more=[b"<< /First 7 0 R /Last 7 0 R >>", entry]
    ).replace(b"/Type /Catalog", b"/Type /Catalog /Outlines 6 0 R")


def locked_pdf() -> bytes:
    writer = PdfWriter()
    writer.append(PdfReader(BytesIO(pdf_pages(["Secret."]))))
    writer.encrypt("password", algorithm="RC4-128")
    out = BytesIO()
    writer.write(out)
    return out.getvalue()


def zip_bomb(data: bytes, name: str, mib: int) -> bytes:
    """An archive with an empty part `name`, and a part `more/name` that unpacks to `mib` MiB of spaces."""
    out = BytesIO(with_parts(data, {name: b""}))
    with ZipFile(out, "a", ZIP_DEFLATED, compresslevel=1) as archive, archive.open(f"more/{name}", "w") as part:
        for _ in range(mib):
            part.write(b" " * MIB)
    return out.getvalue()


def with_overlapping_parts(data: bytes, times: int) -> bytes:
    """An archive whose central directory lists one part of 10 MiB and `times` further names for it."""
    out = BytesIO(data)
    with ZipFile(out, "a", ZIP_DEFLATED) as archive:
        archive.writestr("big.xml", b" " * (10 * MIB))
        for number in range(times):
            again = copy(archive.getinfo("big.xml"))
            again.filename = f"big{number}.xml"
            archive.filelist.append(again)
    return out.getvalue()


def understated_size(data: bytes, name: str) -> bytes:
    """An archive whose central directory states a size of 100 bytes for a part that unpacks to 257 MiB."""
    archive = bytearray(zip_bomb(data, name, 257))
    place = archive.rindex(b"PK\x01\x02", 0, archive.rindex(f"more/{name}".encode()))
    archive[place + 24 : place + 28] = struct.pack("<I", 100)
    return bytes(archive)


def entity_declarations(kind: str) -> bytes:
    """A document type declaration with an entity that refers to a file, or with nested entities, each ten times as long as the one inside it."""
    if kind == "file":
        return b'<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
    steps = b"".join(b'<!ENTITY a%d "%s">' % (n + 1, b"&a%d;" % n * 10) for n in range(9))
    return b'<!DOCTYPE x [<!ENTITY a0 "salt">%s<!ENTITY a "&a9;">]>' % steps


def with_entity(data: bytes, part: str, kind: str, text: bytes) -> bytes:
    """An archive in which an entity replaces `text` in the part `part`."""

    def changed(name: str, content: bytes) -> bytes:
        if name != part:
            return content
        assert text in content
        head = content[: content.index(b"?>") + 2] if content.startswith(b"<?xml") else b""
        return head + entity_declarations(kind) + content[len(head) :].replace(text, b"&a;")

    return with_parts(data, {}, changed)


def deep_docx(depth: int) -> bytes:
    body = b"<w:sdt><w:sdtContent>" * depth + b"<w:p/>" + b"</w:sdtContent></w:sdt>" * depth

    def changed(name: str, content: bytes) -> bytes:
        return content.replace(b"<w:body>", b"<w:body>" + body) if name == "word/document.xml" else content

    return with_parts(docx_of(fill_report), {}, changed)


def remote_docx(address: str) -> bytes:
    """A document whose template and picture are on a server."""
    document = docx.Document()
    document.add_paragraph("Remote files stay remote.")
    for kind in ("attachedTemplate", "image"):
        document.part.rels.get_or_add_ext_rel(f"{ROOT_RELATIONSHIPS}/{kind}", f"{address}/{kind}")
    return bytes_of(document)


def many_parts(count: int) -> bytes:
    out = BytesIO()
    with ZipFile(out, "w") as archive:
        for number in range(count):
            archive.writestr(f"{number}", b"")
    return out.getvalue()


def locked_epub() -> bytes:
    hidden = (
        b'<encryption xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><EncryptedData '
        b'xmlns="http://www.w3.org/2001/04/xmlenc#"><CipherData><CipherReference URI="OPS/text/c%200.xhtml"/></CipherData>'
        b"</EncryptedData></encryption>"
    )
    return epub(["x"], more={"META-INF/encryption.xml": hidden})


def deep_json(depth: int) -> bytes:
    return b'{"cells": ' + b"[" * depth + b"]" * depth + b"}"


def yaml_billion_laughs() -> bytes:
    steps = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10))
    return f"---\na0: &a0 [salt, salt]\n{steps}---\nText.\n".encode()
