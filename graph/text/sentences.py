"""Splits a text into units: sentences (of prose and of list items), headings and table rows, with their offsets."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from sentencex import get_sentence_boundaries

LIST_ITEM = re.compile(r"^\s*(?:[-*+•]|\d{1,3}[.)])\s+")
HEADING = re.compile(r"^\s{0,3}#{1,6}\s+")
_RULE = re.compile(r"^[\s|:+=-]+$")
_WIDE_END = re.compile("[。！？｡]+[」』”’）)]*")
"""Marks that end a sentence whatever follows; the library does not split before a digit."""
_SENTENCE_END = re.compile(r"[.!?…。！？｡][\"'”’»)\]」』）]*$")
_LINE = re.compile(r"[^\n]*\n?")


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


def split_units(text: str) -> Iterator[Unit]:
    """Yield the units of `text` in order, without the markers of headings and list items and without outer white space; offsets are into `text`.

    The header of a table is not a unit: it is in the cells of the table's rows.
    """
    header: tuple[str, ...] = ()
    for block, start in _blocks(text):
        if is_row(block.partition("\n")[0]):
            cells = tuple(cell.strip() for cell in block.strip().strip("|").split("|"))
            if _RULE.match(block):
                continue
            if not header:
                header = cells
                continue
            pairs = tuple(pair for pair in zip(header, cells, strict=False) if pair[1])
            yield _trim(text, start, start + len(block), "row", pairs)
            continue
        header = ()
        if marker := HEADING.match(block):
            yield _trim(text, start + marker.end(), start + len(block), "heading")
        else:
            marker = LIST_ITEM.match(block)
            body = start + (marker.end() if marker else 0)
            yield from _sentences(text, body, start + len(block))


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


def spell_out_rows(text: str) -> str:
    """The text with each table row as a sentence of "header: value" pairs, without the lines of headers; in one line, rows with bars cannot be told apart.

    >>> spell_out_rows("Fares.\\n\\n| Stop | Fare |\\n|---|---|\\n| Quay | 3 |\\n| Mill | 4 |\\n\\nEnd.")
    'Fares.\\n\\nStop: Quay; Fare: 3.\\nStop: Mill; Fare: 4.\\n\\nEnd.'
    """
    pieces, at = list[str](), 0
    for unit in split_units(text) if "|" in text else ():
        if unit.cells:
            lines = text[at : unit.start].split("\n")
            pieces += ["\n".join(line for line in lines if not is_row(line)), f"{unit.line}."]
            at = unit.end
    return "".join([*pieces, text[at:]])


def is_complete(text: str) -> bool:
    """Whether a text ends as a sentence does.

    >>> is_complete("The yard burned.”"), is_complete("The yard bur")
    (True, False)
    """
    return _SENTENCE_END.search(text) is not None


def is_row(line: str) -> bool:
    """Whether a line is a row of a table.

    >>> is_row("| a | b |"), is_row("a | b")
    (True, False)
    """
    return line.strip().startswith("|") and line.count("|") >= 2


def _trim(text: str, start: int, end: int, kind: str, cells: tuple[tuple[str, str], ...] = ()) -> Unit:
    piece = text[start:end]
    start += len(piece) - len(piece.lstrip())
    end = start + len(piece.strip())
    return Unit(text[start:end], start, end, kind, cells)
