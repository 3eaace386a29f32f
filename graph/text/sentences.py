"""Splits a text into units: sentences (of prose and of list items), headings and table rows, with their offsets."""

import re
from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import NamedTuple

from sentencex import get_sentence_boundaries

from graph.text.word_forms import SENTENCE_ENDS

LIST_ITEM = re.compile(r"^\s*(?:[-*+•]|\d{1,3}[.)])\s+")
HEADING = re.compile(r"^\s{0,3}#{1,6}\s+")
_RULE = re.compile(r"^(?=.*(?:--|==|[|:]-|-:))[\s|:+=-]+$")
"""The rule below the header of a table, such as |---|---|."""
_DASHES = re.compile(r"^(?:\s*\|\s*-)+\s*\|?\s*$")
"""A rule directly below the first row of a table; elsewhere a row: | - | - |."""
_WIDE_END = re.compile("[。！？｡]+[」』”’）)]*")
"""Marks that end a sentence whatever follows; sentencex does not split at them before a digit."""
_SENTENCE_END = re.compile(rf"[.!?…{SENTENCE_ENDS}][\"'”’»)\]」』）]*$")
_LINE = re.compile(r"[^\n]*\n?")
_TEXT = re.compile(r"\S")

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
    A table ends at two empty lines. Rows without a header (the only row of a table; a title above the header; source code) are read as text, cell by
    cell. `header` is the header of the table inside which the text begins, if any: at a row, or within a row that was cut.
    """
    for block, start, kind, names, _ in _blocks_of_tables(text, header):
        end = start + len(block)
        if kind == "row":
            pairs = tuple(pair for pair in zip_longest(names, _cells(block), fillvalue="") if pair[1])
            yield _trim(text, start, end, "row", pairs)
        elif kind == "cells":
            for cell in _CELL.finditer(text, start, end):
                yield from _sentences(text, *cell.span())
        elif marker := HEADING.match(block):
            yield _trim(text, start + marker.end(), end, "heading")
        elif kind == "prose":
            marker = LIST_ITEM.match(block)
            body = start + (marker.end() if marker else 0)
            yield from _sentences(text, body, end)


def headers_at(text: str, starts: Iterable[int], header: Cells = ()) -> Iterator[Cells]:
    """For each of the `starts` of parts of `text`, the header of the table inside which the part begins; () outside a table.

    `header` as in `split_units`.

    >>> text = "Fares.\\n\\n| Stop | Fare |\\n| Quay | 3 |\\nEnd."
    >>> list(headers_at(text, [0, text.index("3"), text.index("End")]))
    [(), ('Stop', 'Fare'), ()]
    """
    rows = _blocks_of_tables(text, header) if header or "|" in text else ()
    blocks = [_Block("", 0, "prose", header, header), *rows]
    begins = [block.start for block in blocks]
    for start in starts:
        start = _offset_of_text(text, start)
        block = blocks[bisect(begins, start) - 1]
        yield block.below if text[block.start : start].strip() else block.header


def _offset_of_text(text: str, start: int) -> int:
    """The offset of the first character at or after `start` that is not white space."""
    match = _TEXT.search(text, start)
    return match.start() if match else len(text)


class _Block(NamedTuple):
    """A block and its place in a table: `header` is that of a part of the text that begins where the block does, `below` that of one that begins later."""

    text: str
    start: int
    kind: str
    """header (of the rows below it; also its rule and empty rows), row (below a header), cells (a row without a header) or prose."""
    header: Cells
    below: Cells


def _blocks_of_tables(text: str, header: Cells) -> Iterator[_Block]:
    """The blocks of a text; `header` as in `split_units`. The first rule of a table makes the row above it the header (GitHub Flavored Markdown)."""
    blocks = list(split_blocks(text))
    end = first = blocks[0][1] if blocks else 0
    rule = -1
    nexts = zip_longest(blocks, blocks[1:], fillvalue=("", 0))
    for ((block, start), (following, next_start)), has_rule in zip(nexts, _rules_below(blocks), strict=True):
        breaks_above, end = text.count("\n", end, start), start + len(block)
        breaks_below = text.count("\n", end, next_start)
        outer = header = () if breaks_above > 1 else header
        if not begins_with_row(block):
            outer = header = header if start == first and "\n" not in block.strip() else ()
            yield _Block(block, start, "prose", outer, header)
            continue
        continues = is_row(following) and breaks_below < 2
        is_first = not header or breaks_above > breaks_below
        is_above_rule = continues and (_RULE.match(following) or (not breaks_below and _DASHES.match(following)))
        if start == rule or _RULE.match(block):
            kind = "header"
        elif is_first and is_above_rule:
            outer, header, rule, kind = (), _cells(block), next_start, "header"
        elif not header and not has_rule and _is_header(block, breaks_below):
            header, kind = _cells(block), "header" if continues else "cells"
        else:
            kind = ("row" if header else "cells") if any(_cells(block)) else "header"
        yield _Block(block, start, kind, outer, header)


def _rules_below(blocks: Sequence[tuple[str, int]]) -> list[bool]:
    """For each block, whether rows directly below it include a rule."""
    found = [False] * len(blocks)
    for at in range(len(blocks) - 2, -1, -1):
        (block, start), (following, next_start) = blocks[at : at + 2]
        is_joined = next_start == start + len(block) and is_row(following)
        found[at] = is_joined and (found[at + 1] or _RULE.match(following) is not None)
    return found


def _is_header(row: str, breaks_below: int) -> bool:
    """Whether the first row of a table is a header without a rule: it contains more than a title (one text, in the first column); and it ends with a bar
    or has an empty line below it, unlike a line of source code.
    """
    cells = _cells(row)
    return not {cells[0], ""}.issuperset(cells) and (row.rstrip().endswith("|") or breaks_below == 1)


_BAR, _CLOSING_BAR = re.compile(r"(?<!\\)\|"), re.compile(r"(?<!\\)\|$")
_CELL = re.compile(r"(?:\\\||[^|])+")


def _cells(row: str) -> Cells:
    """The cells of a row; a bar after a backslash is part of its cell (GitHub Flavored Markdown).

    >>> _cells("||3|"), _cells(r"| a \\| b | 3 |")
    (('', '3'), ('a | b', '3'))
    """
    inner = _CLOSING_BAR.sub("", row.strip().removeprefix("|"))
    return tuple(cell.strip().replace(r"\|", "|") for cell in _BAR.split(inner))


def split_blocks(text: str) -> Iterator[tuple[str, int]]:
    """Table rows, headings, list items with the indented lines below them, and the runs of prose lines between these, each with its offset."""
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
    """The text with each table row as a sentence of "header: value" pairs, and without headers, rules and empty rows. `header` as in `split_units`.

    >>> spell_out_rows("Fares.\\n\\n| Stop | Fare |\\n|---|---|\\n| Quay | 3 |\\n| Mill | 4 |\\n\\nEnd.")
    'Fares.\\n\\nStop: Quay; Fare: 3.\\nStop: Mill; Fare: 4.\\n\\nEnd.'
    """
    pieces, at = list[str](), 0
    for unit in split_units(text, header) if "|" in text else ():
        if unit.cells:
            lines = enumerate(text[at : unit.start].split("\n"))
            others = "\n".join(line for number, line in lines if (at and number == 0) or not is_row(line))
            pieces += [others, f"{unit.line}."]
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
