"""Splits a text into units: sentences (of prose and of list items), headings and table rows, with their offsets."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise, takewhile, zip_longest

from sentencex import get_sentence_boundaries

from graph.text.word_forms import SENTENCE_ENDS

LIST_ITEM = re.compile(r"^\s*(?:[-*+•]|\d{1,3}[.)])\s+")
HEADING = re.compile(r"^\s{0,3}#{1,6}\s+")
_RULE = re.compile(r"^[\s|:+=-]+$")
"""The rule below the header of a table, such as |---|---|."""
_WIDE_END = re.compile("[。！？｡]+[」』”’）)]*")
"""Marks that end a sentence whatever follows; sentencex does not split at them before a digit."""
_SENTENCE_END = re.compile(rf"[.!?…{SENTENCE_ENDS}][\"'”’»)\]」』）]*$")
_LINE = re.compile(r"[^\n]*\n?")
_TEXT = re.compile(r"\S")
_TABLE_END = re.compile(r"^(?:[^\S\n]*\n){2}", re.MULTILINE)
"""Two empty lines."""

Cells = tuple[str, ...]
"""The cells of a row of a table."""


@dataclass(frozen=True)
class Unit:
    """One sentence (of prose or of a list item), heading or table row, at text[start:end]; `cells` are a row's header–value pairs."""

    text: str
    start: int
    end: int
    kind: str
    cells: tuple[tuple[str, str], ...] = ()

    @property
    def line(self) -> str:
        """The text on one line; a table row as "header: value" pairs (HLG §4.3.2)."""
        if self.cells:
            return "; ".join(f"{header}: {value}" if header else value for header, value in self.cells)
        return " ".join(self.text.split())


def split_units(text: str, header: Cells = ()) -> Iterator[Unit]:
    """Yield the units of `text` in order, without the markers of headings and list items and without surrounding white space; offsets are into `text`.

    The header of a table is not a unit: it is in the cells of the table's rows; cells beyond the last column of the header have the header "".
    A table ends at two empty lines. Rows without a header (the only row of a table; a title above the header) are read as text, cell by cell.
    `header` is the header of the table inside which the text begins, if any: at a row, or within a row that was cut.
    """
    blocks = list(_blocks(text))
    end = first = blocks[0][1] if blocks else 0
    for (block, start), (following, below) in zip_longest(blocks, blocks[1:], fillvalue=("", 0)):
        header = () if text.count("\n", end, start) > 1 else header
        end = start + len(block)
        if is_row(block.partition("\n")[0]):
            if _RULE.match(block):
                continue
            if _is_header(block, following, header):
                header = _cells(block)
                if is_row(following) and text.count("\n", end, below) < 2:
                    continue
            elif header:
                pairs = tuple(pair for pair in zip_longest(header, _cells(block), fillvalue="") if pair[1])
                yield _trim(text, start, end, "row", pairs)
                continue
            for cell in _CELL.finditer(text, start, end):
                yield from _sentences(text, *cell.span())
            continue
        header = header if start == first and "\n" not in block.strip() else ()
        if marker := HEADING.match(block):
            yield _trim(text, start + marker.end(), end, "heading")
        else:
            marker = LIST_ITEM.match(block)
            body = start + (marker.end() if marker else 0)
            yield from _sentences(text, body, end)


def headers_at(text: str, starts: Iterable[int], header: Cells = ()) -> Iterator[Cells]:
    """For each of the ascending `starts` of parts of `text`, the header of the table inside which the part begins; () outside a table.

    `header` as in `split_units`.

    >>> text = "Fares.\\n\\n| Stop | Fare |\\n| Quay | 3 |\\nEnd."
    >>> list(headers_at(text, [0, text.index("3"), text.index("End")]))
    [(), ('Stop', 'Fare'), ()]
    """
    begin = read = _offset_of_text(text, 0)
    """`header` takes the text between these into account, in whole lines."""
    for start in starts:
        start = _offset_of_text(text, start)
        if start >= read:
            line = max(read, text.rfind("\n", read, start) + 1)
            end = text.find("\n", start) + 1 or len(text)
            is_inside = line == begin or is_row(text[line:end])
            cuts_line = bool(text[line:start].strip()) or _RULE.match(text[line:end])
            end = end if cuts_line else line
            header = _header_below(text[read:end], header, read == begin) if end > read else header
            header, read = header if is_inside else (), end
        yield header


def _offset_of_text(text: str, start: int) -> int:
    """The offset of the first character at or after `start` that is not white space."""
    match = _TEXT.search(text, start)
    return match.start() if match else len(text)


def _header_below(text: str, header: Cells, may_be_cut: bool) -> Cells:
    """The header of the table that continues below the lines of `text`, whose first may be the rest of a row; () if they do not end with a row."""
    *above, text = _TABLE_END.split(text)
    lines = [line for line in text.split("\n") if line.strip()]
    rows = list(takewhile(is_row, reversed(lines)))[::-1]
    header = header if not above and len(lines) - len(rows) <= may_be_cut else ()
    for row, following in zip_longest(rows, rows[1:], fillvalue=""):
        header = _cells(row) if _is_header(row, following, header) else header
    return header


_BAR, _CLOSING_BAR = re.compile(r"(?<!\\)\|"), re.compile(r"(?<!\\)\|$")
_CELL = re.compile(r"(?:\\\||[^|])+")


def _is_header(row: str, following: str, header: Cells) -> bool:
    """Whether a row is a header: one with a rule below it, or the first row of a table, if it contains more than a title (one text, in the first column)."""
    if _RULE.match(row):
        return False
    if is_row(following) and _RULE.match(following):
        return True
    first, *others = _cells(row)
    return not header and not (first and {first, ""}.issuperset(others))


def _cells(row: str) -> Cells:
    """The cells of a row; a bar after a backslash is part of its cell (GitHub Flavored Markdown).

    >>> _cells("||3|"), _cells(r"| a \\| b | 3 |")
    (('', '3'), ('a | b', '3'))
    """
    inner = _CLOSING_BAR.sub("", row.strip().removeprefix("|"))
    return tuple(cell.strip().replace(r"\|", "|") for cell in _BAR.split(inner))


def _blocks(text: str) -> Iterator[tuple[str, int]]:
    """Table rows, headings, list items with the indented lines below them, and the runs of prose lines between these."""
    block_start: int | None = None
    in_item = False
    for match in _LINE.finditer(text):
        line, start = match[0], match.start()
        alone = is_row(line) or bool(HEADING.match(line))
        is_item = bool(LIST_ITEM.match(line))
        ends_block = alone or is_item or not line.strip() or (in_item and not line[0].isspace())
        if block_start is not None and ends_block:
            yield text[block_start:start], block_start
            block_start = None
        if alone:
            yield line, start
        elif line.strip() and block_start is None:
            block_start, in_item = start, is_item
    if block_start is not None:
        yield text[block_start:], block_start


def _sentences(text: str, start: int, end: int) -> Iterator[Unit]:
    for boundary in get_sentence_boundaries("en", text[start:end]):
        first, last = start + boundary["start_index"], start + boundary["end_index"]
        for begin, finish in pairwise([first, *(m.end() for m in _WIDE_END.finditer(text, first, last)), last]):
            unit = _trim(text, begin, finish, "sentence")
            if unit.text:
                yield unit


def spell_out_rows(text: str, header: Cells = ()) -> str:
    """The text with each table row as a sentence of "header: value" pairs, and without the header and the rule below it. `header` as in `split_units`.

    >>> spell_out_rows("Fares.\\n\\n| Stop | Fare |\\n|---|---|\\n| Quay | 3 |\\n| Mill | 4 |\\n\\nEnd.")
    'Fares.\\n\\nStop: Quay; Fare: 3.\\nStop: Mill; Fare: 4.\\n\\nEnd.'
    """
    pieces, at = list[str](), 0
    for unit in split_units(text, header) if "|" in text else ():
        if unit.cells:
            lines = text[at : unit.start].split("\n")
            pieces += ["\n".join(line for line in lines if not is_row(line)), f"{unit.line}."]
        else:
            pieces.append(text[at : unit.end])
        at = unit.end
    return "".join([*pieces, text[at:]])


def spell_out_row(row: str, text: str, header: Cells = ()) -> str:
    """`row`, a line of `text`, as `spell_out_rows` writes it but without a full stop; unchanged if it is a header, a rule or no table row.

    >>> spell_out_row("| Quay | 3 |", "| Stop | Fare |\\n| Quay | 3 |"), spell_out_row("End.", "End.")
    ('Stop: Quay; Fare: 3', 'End.')
    """
    units = split_units(text, header) if is_row(row) else ()
    return next((unit.line for unit in units if unit.text == row.strip()), row)


def is_complete(text: str) -> bool:
    """Whether a text ends as a sentence does.

    >>> is_complete("The yard burned.”"), is_complete("यह गाँव है।"), is_complete("The yard bur")
    (True, True, False)
    """
    return _SENTENCE_END.search(text) is not None


def is_row(line: str) -> bool:
    """Whether a line is a row of a table: it starts with a bar and contains at least two.

    >>> is_row("| a | b |"), is_row("a | b")
    (True, False)
    """
    return line.strip().startswith("|") and line.count("|") >= 2


def begins_with_row(text: str) -> bool:
    """Whether the first line of a text is a row of a table."""
    return is_row(text.lstrip().partition("\n")[0])


def _trim(text: str, start: int, end: int, kind: str, cells: tuple[tuple[str, str], ...] = ()) -> Unit:
    piece = text[start:end]
    start += len(piece) - len(piece.lstrip())
    end = start + len(piece.strip())
    return Unit(text[start:end], start, end, kind, cells)
