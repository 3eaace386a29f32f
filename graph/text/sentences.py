"""Splits a text into units: sentences (of prose and of list items), headings and table rows, with their offsets."""

import re
from collections.abc import Iterator
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
    `header` is the header of the table inside which the text begins, if any.
    """
    blocks = list(_blocks(text))
    for (block, start), (following, _) in zip_longest(blocks, blocks[1:], fillvalue=("", 0)):
        if is_row(block.partition("\n")[0]):
            if _RULE.match(block):
                continue
            if _is_header(block, following, header):
                header = _cells(block)
                continue
            pairs = tuple(pair for pair in zip_longest(header, _cells(block), fillvalue="") if pair[1])
            yield _trim(text, start, start + len(block), "row", pairs)
            continue
        header = ()
        if marker := HEADING.match(block):
            yield _trim(text, start + marker.end(), start + len(block), "heading")
        else:
            marker = LIST_ITEM.match(block)
            body = start + (marker.end() if marker else 0)
            yield from _sentences(text, body, start + len(block))


def header_at_end(text: str, header: Cells = ()) -> Cells:
    """The header of the table that continues after `text`; () if the text does not end with a row. `header` as in `split_units`.

    >>> header_at_end("Fares.\\n\\n| Stop | Fare |\\n|---|---|\\n| Quay | 3 |"), header_at_end("| Stop |\\nEnd.")
    (('Stop', 'Fare'), ())
    """
    lines = [line for line in text.split("\n") if line.strip()]
    rows = list(takewhile(is_row, reversed(lines)))[::-1]
    header = header if len(rows) == len(lines) else ()
    for row, following in zip_longest(rows, rows[1:], fillvalue=""):
        header = _cells(row) if _is_header(row, following, header) else header
    return header if rows else ()


_BAR, _CLOSING_BAR = re.compile(r"(?<!\\)\|"), re.compile(r"(?<!\\)\|$")


def _is_header(row: str, following: str, header: Cells) -> bool:
    """Whether a row is a header: one with a rule below it, or the first row of a table."""
    return not _RULE.match(row) and (not header or (is_row(following) and _RULE.match(following) is not None))


def _cells(row: str) -> Cells:
    """The cells of a row; a bar after a backslash is part of its cell (GitHub Flavored Markdown).

    >>> _cells("||3|"), _cells(r"| a \\| b | 3 |")
    (('', '3'), ('a | b', '3'))
    """
    inner = _CLOSING_BAR.sub("", row.strip().removeprefix("|"))
    return tuple(cell.strip().replace(r"\|", "|") for cell in _BAR.split(inner))


def _blocks(text: str) -> Iterator[tuple[str, int]]:
    """Lines that are separate units, and the runs of prose lines between them."""
    prose_start: int | None = None
    for match in _LINE.finditer(text):
        line, start = match[0], match.start()
        alone = is_row(line) or bool(HEADING.match(line)) or bool(LIST_ITEM.match(line))
        if prose_start is not None and (alone or not line.strip()):
            yield text[prose_start:start], prose_start
            prose_start = None
        if alone:
            yield line, start
        elif line.strip() and prose_start is None:
            prose_start = start
    if prose_start is not None:
        yield text[prose_start:], prose_start


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
    """Whether a line is a row of a table: it starts with a bar and has at least two.

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
