"""Plain text: bytes to text, the title at the start of a text, and the text layout shared by all formats.

Blocks are separated by an empty line, table rows are Markdown rows, and the offset of each page is recorded.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from io import StringIO
from itertools import groupby
from typing import Any

from graph.documents.parse.formats import MAX_FILE_BYTES, MAX_PAGES, ParsedFile
from graph.errors import UserError
from graph.shared.pages import PAGE_STARTS

MAX_FIRST_LINE = 120
GAP = "\n\n"
"""The separator of blocks and pages."""
TABLE_GAP = "\n\n\n"
"""The separator of two tables (graph/text/sentences.py)."""
_NO_TITLE = ("#!", "\\", "%", "//", ".. ", "<!--", "- ", "* ", "+ ")
"""The beginnings of first lines that are commands or comments in a script, LaTeX, AsciiDoc, reStructuredText or Markdown, or list items."""
_ABOVE_TITLE = re.compile(r"\s*(?:(={3,}|\*{3,}|[-_]{3,}(?=\s*\n\s*\n))[ \t]*\r?\n\s*)?")
"""White space, and a rule above a title; not one that opens invalid front matter."""
_RULE = re.compile(r"([-=*_])\1{2,}\s*")
DELIMITERS = ",;\t|"
"""The cell separators that are tried; a first line sep=… can declare another."""
_SAMPLE_CHARS = 1 << 16
RAISED, LOWERED, PART, PART_END, APART = "\ufdd0\ufdd1\ufdd2\ufdd3\ufdd4"
"""Marks, until the text is joined, at the start and end of a superscript and of a part of a fraction, and at the end of a number. They occur in no text,
because Unicode reserves them."""
MAX_REPEATED = 1 << 20
"""The maximum number of characters that are repeated in spanned rows and columns of a page or table."""
_DELIMITER_LINE = re.compile(r"sep=([^\"\r\n])\r?\n")
"""The first line by which spreadsheet programs declare the delimiter."""
_NOT_TEXT = re.compile("[\0\ud800-\udfff]")
_TIGHT = ("| ", "- ")
"""The first characters of table rows and of list items: no empty line separates two rows or two items."""


def decode_text(data: bytes, file: str) -> str:
    """UTF-8 text (a byte-order mark is dropped); UserError naming `file` for other encodings and for binary files."""
    if b"\0" in data:
        found = f"{file}: byte 0x00 at offset {data.index(0):,} (a binary file)"
        raise UserError(found, "UTF-8 text", "convert or remove the file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        found = f"{file}: byte {data[problem.start]:#04x} at offset {problem.start:,} is not UTF-8"
        raise UserError(found, "UTF-8 text", f"convert it, for example: iconv -f latin1 -t utf-8 {file}") from None


def clean(value: Any) -> Any:
    """A string, or all strings in a value, with NUL characters and lone surrogates replaced by U+FFFD."""
    if isinstance(value, str):
        return _NOT_TEXT.sub("\ufffd", value)
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    return [clean(item) for item in value] if isinstance(value, list) else value


def title_of(text: str) -> str:
    """A Markdown or AsciiDoc heading on the first line, or a short first line that is underlined or followed by an empty one; else "".

    >>> title_of("# The Lantern #\\nA ferry."), title_of("Tides\\n-----\\nHigh at noon."), title_of("A ferry.")
    ('The Lantern', 'Tides', '')
    """
    _, overline, below = _ABOVE_TITLE.split(text, maxsplit=1)
    lines = below.splitlines()
    if not lines:
        return ""
    first = lines[0].strip()
    if first.startswith(_NO_TITLE) or _RULE.fullmatch(first):
        return ""
    if first.startswith(("#", "= ", "== ")):
        heading = first.lstrip(first[0])
        unclosed = heading.rstrip(first[0])
        return (unclosed if unclosed.endswith((" ", "\t")) else heading).strip()
    rule = _RULE.fullmatch(lines[1]) if len(lines) > 1 else None
    is_underlined = rule and (rule[1] in "-=" or rule[1] == (overline or "")[:1])
    stands_alone = is_underlined or (len(lines) > 1 and not lines[1].strip())
    return first if stands_alone and len(first) <= MAX_FIRST_LINE else ""


def resolve_marks(text: str) -> str:
    """A text without marks: ^ before a superscript number and a blank after it, if they adjoin digits; / in fractions, brackets around compound parts.

    >>> resolve_marks(f"10{RAISED}-3{LOWERED}5 {PART}1{PART_END}{PART}2x + 1{PART_END}")
    '10^-3 5 1/(2x + 1)'
    """
    text = re.sub(rf"{PART_END}\s*+{PART}", f"{PART_END}/{PART}", text.replace(RAISED + LOWERED, ""))
    text = re.sub(rf"{PART}\s*+([\w.]*+){APART}?\s*+{PART_END}", rf"\1{APART}", text)
    text = text.replace(PART, "(").replace(PART_END, ")")
    text = re.sub(rf"(?<=\d){RAISED}(?=[-+−]?\d)", "^", text).replace(RAISED, "")
    return re.sub(rf"(?<=\d)[{LOWERED}{APART}]+(?=\d)", " ", text).replace(LOWERED, "").replace(APART, "")


def begins_with_front_matter(text: str) -> bool:
    """Whether the first line is --- or +++, which opens metadata (front_matter.py)."""
    return text.startswith(("---", "+++")) and text.splitlines()[0].rstrip() in ("---", "+++")


def table_text(text: str, delimiter: str = "") -> str:
    """A CSV file as table rows, without empty rows and trailing empty cells; lines above the table stay plain text.

    `delimiter` separates the cells if it occurs and the file declares no other. A rule marks the header of a single column. Below an empty
    row, a row without numbers, with numbers below it, is the header of another table if that is not as wide as the table above.

    >>> table_text('Fares of 2026\\n\\nStop;Fare\\n"Quill; quay";3,5\\n;\\n')
    'Fares of 2026\\n\\n| Stop | Fare |\\n| Quill; quay | 3,5 |'
    """
    declared = _DELIMITER_LINE.match(text)
    if declared:
        delimiter, text = declared[1], text[declared.end() :]
    elif not delimiter or delimiter not in text:
        delimiter = _delimiter(text[:_SAMPLE_CHARS])
    groups = groupby(map(filled_cells, _rows(text, delimiter)), key=bool)
    rows, width = list[list[str]](), 0
    for group in (list(group) for is_filled, group in groups if is_filled):
        table, own_width = [row for row in group if len(row) > 1], max(map(len, group))
        is_header = [len(row) == own_width and not _has_number(row) for row in table]
        begins_table = own_width != width and any(map(_has_number, table)) and is_header[0]
        rows += [[], *group] if begins_table else group
        width = own_width if begins_table else max(width, own_width)
    if len(rows) > 1 and all(len(row) == 1 for row in rows):
        rows[1:1] = [["---"]]
    first = next((number for number, row in enumerate(rows) if len(row) > 1), 0)
    return join_blocks(
        [*("".join(row) for row in rows[:first]), *(table_row(row) if row else "" for row in rows[first:])]
    )


def table_row(cells: Iterable[str]) -> str:
    """A table row on one line; a backslash precedes each bar in a cell.

    >>> table_row(["Stop", "Fare \\n (2 zones)", "A|B"])
    '| Stop | Fare (2 zones) | A\\\\|B |'
    """
    return "| " + " | ".join(" ".join(cell.split()).replace("|", r"\|") for cell in cells) + " |"


def join_blocks(blocks: Iterable[str]) -> str:
    """Blocks joined by an empty line, table rows and list items by a line break; an empty block between two rows separates two tables.

    >>> join_blocks(["# Fares", "| a |", "| b |", "", "| c |", "End."])
    '# Fares\\n\\n| a |\\n| b |\\n\\n\\n| c |\\n\\nEnd.'
    """
    pieces: list[str] = []
    previous, ends_table = "", False
    for block in map(str.strip, blocks):
        if block:
            tight = block[:2] in _TIGHT and previous[:2] == block[:2]
            gap = TABLE_GAP if ends_table and block.startswith("| ") else "\n" if tight else GAP
            pieces += [gap, block] if pieces else [block]
            previous = block
        ends_table = not block and previous.startswith("| ")
    return "".join(pieces)


def with_pages(pages: Sequence[str]) -> tuple[str, dict[str, list[int]]]:
    """The text of all pages, joined by an empty line, and the offset of each page; a page may be empty.

    >>> with_pages(["Tides", "", "Salt"])
    ('Tides\\n\\nSalt', {'page_starts': [0, 7, 7]})
    """
    starts, length = list[int](), 0
    for page in pages:
        starts.append(length)
        length += len(page) + len(GAP) if page else 0
    text = GAP.join(page for page in pages if page)
    return text, {PAGE_STARTS: [min(start, len(text)) for start in starts]}


def pages_of(parsed: ParsedFile) -> list[str]:
    """The texts of the pages: the inverse of `with_pages`.

    >>> pages_of(ParsedFile("", *with_pages(["Tides", "", "Salt"])))
    ['Tides', '', 'Salt']
    """
    starts = parsed.metadata[PAGE_STARTS]
    ends = [*starts[1:], len(parsed.text)]
    return [parsed.text[start:end].removesuffix(GAP) for start, end in zip(starts, ends, strict=True)]


def with_headings(page: str, headings: Sequence[str]) -> str:
    """A page in which each heading replaces the line with the same letters and digits, or else one with the same letters if either has no digits;
    headings without such a line go before the text.

    >>> with_headings("12\\n2 Wheels\\nThey turn.", ["# Mills", "## Wheels"])
    '# Mills\\n\\n12\\n\\n## Wheels\\n\\nThey turn.'
    """
    if not headings:
        return page
    lines, unmatched = page.split("\n"), list(headings)
    for of_heading, of_line in ((_alphanumeric, _alphanumeric), (_alphanumeric, _letters), (_letters, _alphanumeric)):
        unplaced = [(row, line) for row, line in enumerate(lines) if "\n" not in line and _letters(line)]
        rows = {of_line(line): row for row, line in reversed(unplaced)}
        remaining, unmatched = unmatched, []
        for heading in remaining:
            row = rows.pop(of_heading(heading), None)
            if row is None:
                unmatched.append(heading)
            else:
                lines[row] = f"\n{heading}\n"
    blocks = "\n".join(lines).split("\n\n")
    return join_blocks([*unmatched, *blocks])


def check_count(count: int, unit: str, file: str) -> None:
    """UserError if a file has more than MAX_PAGES of a `unit`, such as "pages"."""
    if count > MAX_PAGES:
        raise UserError(f"{file}: {count:,} {unit}", f"at most {MAX_PAGES:,}", "split the file")


def _delimiter(sample: str) -> str:
    """The delimiter that splits the largest share of rows into the same number of cells, above 1; on a tie, the one that gives the most cells."""

    def regularity(delimiter: str) -> tuple[float, int]:
        widths = Counter(len(row) for row in _rows(sample, delimiter) if any(row))
        width = max((width for width in widths if width > 1), key=widths.__getitem__, default=0)
        return widths[width] / max(1, widths.total()), width

    return max(DELIMITERS, key=regularity)


def _rows(text: str, delimiter: str) -> Iterator[list[str]]:
    """The rows of a CSV file. If a quote at the start of a cell is not closed at its end, as in `"3 inch`, the row ends with the line.

    Blanks may follow the closing quote.
    """
    csv.field_size_limit(MAX_FILE_BYTES)
    read = partial(csv.reader, delimiter=delimiter, skipinitialspace=True)
    text = re.sub(rf'" +(?=[{re.escape(delimiter)}\r\n])', '"', text)
    lines, end = list(StringIO(text, newline="")), 0
    while end < len(lines):
        start, rows = end, read(map(lines.__getitem__, range(end, len(lines))), strict=True)
        try:
            for row in rows:
                yield [cell.strip() for cell in row]
                end = start + rows.line_num
        except csv.Error:
            row_line = read([lines[end]], quoting=csv.QUOTE_NONE if lines[end].count('"') % 2 else csv.QUOTE_MINIMAL)
            yield from ([cell.strip() for cell in row] for row in row_line)
            end += 1


def _has_number(row: Sequence[str]) -> bool:
    """Whether a cell has digits and no letters, as do numbers, dates and amounts."""
    return any(any(map(str.isdigit, cell)) and not any(map(str.isalpha, cell)) for cell in row)


def filled_cells(row: list[str]) -> list[str]:
    """A row without trailing empty cells."""
    while row and not row[-1]:
        row.pop()
    return row


def _alphanumeric(line: str) -> str:
    """The letters and digits of a line, case folded: they identify a heading regardless of its case, spaces and punctuation."""
    return "".join(filter(str.isalnum, line.casefold()))


def _letters(line: str) -> str:
    """The letters of a line, case folded: they identify a heading regardless of its number, too."""
    return "".join(filter(str.isalpha, line.casefold()))
