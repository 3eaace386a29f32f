"""The cells of a workbook as Markdown rows, sheet by sheet. Formulas appear as their saved values and are not computed."""

from collections.abc import Iterator
from datetime import date, datetime, time
from io import BytesIO
from typing import Any

from openpyxl import load_workbook

from graph.documents.parse.archive import check_office
from graph.documents.parse.formats import ParsedFile
from graph.documents.parse.plain import check_count, filled_cells, join_blocks, table_row


def read(data: bytes, file: str) -> ParsedFile:
    """The title from the workbook's properties; as text, the non-empty rows of each sheet, hidden or not, below its name as a heading."""
    check_office(data, file)
    book = load_workbook(BytesIO(data), read_only=True, data_only=True, keep_links=False)
    check_count(len(book.worksheets), "sheets", file)
    sheets = [(sheet.title, join_blocks(_rows(sheet))) for sheet in book.worksheets]
    return ParsedFile(
        (book.properties.title or "").strip(), join_blocks(f"# {name}\n\n{rows}" for name, rows in sheets if rows)
    )


def _rows(sheet: Any) -> Iterator[str]:
    """The rows, "" for an empty one; the dimensions that a sheet declares are ignored."""
    sheet.reset_dimensions()
    for row in sheet.iter_rows(values_only=True):
        cells = filled_cells([cell_text(value) for value in row])
        yield table_row(cells) if cells else ""


def cell_text(value: object) -> str:
    """A value as text: numbers to 15 digits, as a spreadsheet shows them without a cell format; dates and times in ISO 8601.

    >>> cell_text(0.1 + 0.2), cell_text(3.0), cell_text(True), cell_text(datetime(2026, 3, 1)), cell_text(None)
    ('0.3', '3', 'TRUE', '2026-03-01', '')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float):
        return f"{value:.15g}"
    if isinstance(value, datetime) and value.time() == time():
        return value.date().isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    return str(value).strip()
