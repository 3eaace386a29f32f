"""Files of ten formats that ask their reader to fetch a URL or to run a program."""

import json
from collections.abc import Callable
from io import BytesIO

import openpyxl
import pptx
from openpyxl.worksheet.hyperlink import Hyperlink
from pypdf import PdfReader, PdfWriter
from pypdf.generic import DictionaryObject, NameObject, TextStringObject

from tests.graph.documents import made

TEXT = "Remote files stay remote."


def remote_pptx(address: str) -> bytes:
    """A slide with a link, and with a picture, a slide master and an OLE object on a server."""
    deck = pptx.Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[6])
    frame = slide.shapes.add_textbox(0, 0, 9, 9).text_frame
    frame.text = TEXT
    frame.paragraphs[0].runs[0].hyperlink.address = f"{address}/link"
    for kind in ("image", "slideMaster", "oleObject"):
        slide.part.rels.get_or_add_ext_rel(f"{made.ROOT_RELATIONSHIPS}/{kind}", f"{address}/{kind}")
    return made.bytes_of(deck)


def remote_xlsx(address: str) -> bytes:
    """A sheet with a link, a formula that fetches an address and a formula that starts a program."""
    book = openpyxl.Workbook()
    sheet = book.active
    sheet["A1"] = TEXT
    sheet["A2"] = f'=WEBSERVICE("{address}/formula")'
    sheet["A3"] = "=cmd|'/c touch ran'!A0"
    sheet["A1"].hyperlink = Hyperlink(ref="A1", target=f"{address}/link")
    return made.bytes_of(book)


def remote_pdf(address: str, created: str) -> bytes:
    """A PDF whose actions launch a program, run JavaScript and open an address, with a shell script attached."""
    writer = PdfWriter()
    writer.append(PdfReader(BytesIO(made.pdf_pages([TEXT]))))
    script = TextStringObject(f"app.launchURL('{address}/script'); app.execMenuItem('{created}');")
    launch = {"/S": NameObject("/Launch"), "/F": TextStringObject(created)}
    open_address = {"/S": NameObject("/URI"), "/URI": TextStringObject(f"{address}/action")}
    run_script = {"/S": NameObject("/JavaScript"), "/JS": script}
    writer.pages[0][NameObject("/AA")] = DictionaryObject(
        {NameObject("/O"): _dictionary(run_script), NameObject("/C"): _dictionary(open_address)}
    )
    writer.root_object[NameObject("/OpenAction")] = _dictionary(launch)
    writer.add_attachment("run.sh", f"touch {created}".encode())
    out = BytesIO()
    writer.write(out)
    return out.getvalue()


def _dictionary(values: dict[str, object]) -> DictionaryObject:
    return DictionaryObject({NameObject(name): value for name, value in values.items()})


def remote_html(address: str) -> bytes:
    """A page with elements that a browser would fetch, open or run."""
    parts = (
        "<link rel=stylesheet href='{0}/css'><meta http-equiv=refresh content='0; url={0}/meta'><base href='{0}/'>",
        "<img src='{0}/img'><iframe src='{0}/frame'></iframe><script src='{0}/js'></script><object data='{0}/object'>",
    )
    return ("".join(parts).format(address) + f"</object><p>{TEXT}").encode()


def remote_notebook(address: str) -> bytes:
    """A notebook with a cell that fetches an address, and a picture on a server."""
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": f"{TEXT} ![]({address}/img)"},
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
    "remote.docx": lambda address, created: made.remote_docx(address),
    "remote.docm": lambda address, created: made.with_macros(
        made.remote_docx(address), made.DOCX_TYPE, made.DOCM_TYPE, "word", created
    ),
    "remote.pptx": lambda address, created: remote_pptx(address),
    "remote.xlsx": lambda address, created: remote_xlsx(address),
    "remote.pdf": remote_pdf,
    "remote.html": lambda address, created: remote_html(address),
    "remote.epub": lambda address, created: made.epub([remote_html(address).decode()]),
    "remote.eml": lambda address, created: made.message("", remote_html(address).decode()),
    "remote.ipynb": lambda address, created: remote_notebook(address),
    "remote.md": lambda address, created: (
        f"---\nicon: !!python/object/apply:os.system ['touch {created}']\n---\n{TEXT} ![]({address}/img)".encode()
    ),
}
"""For each file name, a function that returns the file's bytes, given a server's address and the path of a file that a program would create."""
