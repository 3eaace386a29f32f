"""Files that ask their reader to fetch an address or to run a program, one of every format."""

import json
from collections.abc import Callable
from io import BytesIO

import openpyxl
import pptx
from openpyxl.worksheet.hyperlink import Hyperlink
from pypdf import PdfReader, PdfWriter
from pypdf.generic import DictionaryObject, NameObject, TextStringObject

from tests.graph.documents import made

SAID = "Remote things stay remote."


def remote_pptx(address: str) -> bytes:
    """A slide with a link, and a picture and a template that are on a server."""
    deck = pptx.Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[6])
    frame = slide.shapes.add_textbox(0, 0, 9, 9).text_frame
    frame.text = SAID
    frame.paragraphs[0].runs[0].hyperlink.address = f"{address}/link"
    for kind in ("image", "slideMaster", "oleObject"):
        slide.part.rels.get_or_add_ext_rel(f"{made.ROOT_RELATIONSHIPS}/{kind}", f"{address}/{kind}")
    return made.saved(deck)


def remote_xlsx(address: str) -> bytes:
    """A sheet with formulas that fetch and that start a program, and a link."""
    book = openpyxl.Workbook()
    sheet = book.active
    sheet["A1"] = SAID
    sheet["A2"] = f'=WEBSERVICE("{address}/formula")'
    sheet["A3"] = "=cmd|'/c touch ran'!A0"
    sheet["A1"].hyperlink = Hyperlink(ref="A1", target=f"{address}/link")
    return made.saved(book)


def remote_pdf(address: str, program: str) -> bytes:
    """A page that opens an address and a program, by link, action and JavaScript, as soon as it is read."""
    writer = PdfWriter()
    writer.append(PdfReader(BytesIO(made.pdf_pages([SAID]))))
    script = TextStringObject(f"app.launchURL('{address}/script'); app.execMenuItem('{program}');")
    action = {"/S": NameObject("/Launch"), "/F": TextStringObject(program)}
    address_of = {"/S": NameObject("/URI"), "/URI": TextStringObject(f"{address}/action")}
    scripted = {"/S": NameObject("/JavaScript"), "/JS": script}
    writer.pages[0][NameObject("/AA")] = DictionaryObject(
        {NameObject("/O"): _dictionary(scripted), NameObject("/C"): _dictionary(address_of)}
    )
    writer.root_object[NameObject("/OpenAction")] = _dictionary(action)
    writer.add_attachment("run.sh", f"touch {program}".encode())
    out = BytesIO()
    writer.write(out)
    return out.getvalue()


def _dictionary(values: dict[str, object]) -> DictionaryObject:
    return DictionaryObject({NameObject(name): value for name, value in values.items()})


def remote_html(address: str) -> bytes:
    """A page with everything that a browser would fetch or run."""
    parts = (
        "<link rel=stylesheet href='{0}/css'><meta http-equiv=refresh content='0; url={0}/meta'><base href='{0}/'>",
        "<img src='{0}/img'><iframe src='{0}/frame'></iframe><script src='{0}/js'></script><object data='{0}/object'>",
    )
    return ("".join(parts).format(address) + f"</object><p>{SAID}").encode()


def remote_notebook(address: str) -> bytes:
    """A notebook whose cells fetch, and whose picture is on a server."""
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": f"{SAID} ![]({address}/img)"},
        {
            "cell_type": "code",
            "metadata": {},
            "outputs": [],
            "execution_count": None,
            "source": f"!curl {address}/cell",
        },
    ]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode()


REMOTE: dict[str, Callable[[str, str], bytes]] = {
    "remote.docx": lambda address, program: made.remote_docx(address),
    "remote.docm": lambda address, program: made.macros(
        made.remote_docx(address), made.DOCX_TYPE, made.DOCM_TYPE, "word", program
    ),
    "remote.pptx": lambda address, program: remote_pptx(address),
    "remote.xlsx": lambda address, program: remote_xlsx(address),
    "remote.pdf": remote_pdf,
    "remote.html": lambda address, program: remote_html(address),
    "remote.epub": lambda address, program: made.epub([remote_html(address).decode()]),
    "remote.eml": lambda address, program: made.message("", remote_html(address).decode()),
    "remote.ipynb": lambda address, program: remote_notebook(address),
    "remote.md": lambda address, program: (
        f"---\nicon: !!python/object/apply:os.system ['touch {program}']\n---\n{SAID} ![]({address}/img)".encode()
    ),
}
"""By name: from an address and the path that a program would create to the bytes of a file that names them."""
