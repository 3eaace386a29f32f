"""HTML to text: splits a page into tokens, in time linear in its length, and selects its main part, without navigation.

A failed search is not repeated: the standard library's parser and libxml2 search for missing ends again and again (1 MB of `<!--`
or of `<b></i>` takes them minutes). Attributes are searched, not parsed; a tag without its > and all that follows it are text."""

import re
from collections import Counter
from collections.abc import Callable, Container, Iterator
from functools import partial
from html import unescape
from typing import Literal, NamedTuple

from graph.documents.parse.formats import ParsedFile
from graph.documents.parse.plain import (
    APART,
    GAP,
    LOWERED,
    MAX_REPEATED,
    PART,
    PART_END,
    RAISED,
    TABLE_GAP,
    decode_text,
    resolve_marks,
    table_row,
)

Kind = Literal["start", "end", "text"]

_TAG = re.compile(r"""<(/?)([a-zA-Z][^\s/>]*+)(?:[^>=]++|=\s*+(?:"[^"]*"|'[^']*')?)*+>""")
_OPENS = re.compile(r"<(?:(?P<comment>!--)|(?P<other>[!?]|/[^a-zA-Z])|/?[a-zA-Z])")
_COMMENT_ENDS, _ENDS = re.compile("-->"), re.compile(">")
_RAW = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in ("script", "style", "title", "textarea")}
"""Elements with raw text, and their end tags. A script or style without an end tag extends to the end of the page."""
_SCRIPTS = ("script", "style")
_LONG_NUMBER = re.compile(r"&#[0-9]{9,}+;?")


class Token(NamedTuple):
    """A tag by its name in lower case, or text with its entities resolved; `tag` is the source of a start tag."""

    kind: Kind
    value: str
    tag: str = ""


def tokens(markup: str) -> Iterator[Token]:
    """The tokens of a page.

    >>> [token[:2] for token in tokens('<P class="a>b">1 &lt; 2<br/></p')]
    [('start', 'p'), ('text', '1 < 2'), ('start', 'br'), ('text', '</p')]
    """
    search, at = _Search(markup), 0
    while (opening := markup.find("<", at)) >= 0:
        if opening > at:
            yield Token("text", _resolve_entities(markup[at:opening]))
        at = opening
        opener = _OPENS.match(markup, opening)
        if opener is None:
            yield Token("text", "<")
            at += 1
        elif opener["comment"]:
            end = search.find(_COMMENT_ENDS, opening + 2)
            at = end.end() if end else opener.end()
        elif opener["other"]:
            end = search.find(_ENDS, opening)
            if end is None:
                break
            at = end.end()
        elif (tag := _TAG.match(markup, opening)) is None:
            break
        else:
            name, at = tag[2].lower(), tag.end()
            if name not in _RAW or tag[1]:
                yield Token("end", name) if tag[1] else Token("start", name, tag[0])
            elif not tag[0].endswith("/>"):
                end = search.find(_RAW[name], at)
                if end is not None:
                    yield Token("start", name, tag[0])
                    yield Token("text", _resolve_entities(markup[at : end.start()]))
                    at = end.start()
                elif name in _SCRIPTS:
                    return
    if at < len(markup):
        yield Token("text", _resolve_entities(markup[at:]))


class _Search:
    """Searches one text from increasing offsets, and never repeats a failed search."""

    def __init__(self, text: str) -> None:
        self._text, self._failed = text, set[re.Pattern[str]]()

    def find(self, pattern: re.Pattern[str], start: int) -> re.Match[str] | None:
        """The first match at or after `start`, or None."""
        match = None if pattern in self._failed else pattern.search(self._text, start)
        if match is None:
            self._failed.add(pattern)
        return match


def _resolve_entities(text: str) -> str:
    """The text with its entities resolved; invalid character numbers of any length become U+FFFD."""
    return unescape(_LONG_NUMBER.sub("\ufffd", text)) if "&" in text else text


INVISIBLE = ("script", "style", "noscript", "template")
HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
BLOCKS = (
    *("p", "div", "section", "article", "ul", "ol", "table", *HEADINGS, "header", "footer", "main", "nav", "aside"),
    *("blockquote", "pre", "dl", "dt", "dd", "figure", "figcaption", "caption", "address", "form", "fieldset", "hr"),
    *("details", "summary", "legend", "center"),
)
MAIN = ("main", "article")
"""Elements that may have their own footer."""
BOILERPLATE = ("nav", "dialog")
"""Elements outside the main text, besides the page's footer."""
_ROLES = re.compile(r"""\srole\s*=\s*["']?(?:navigation|contentinfo|dialog|alertdialog|search)\b""", re.IGNORECASE)
_NAMES = re.compile(r"""\s(class|id)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>"']+))""", re.IGNORECASE)
_HEADING_STARTS = re.compile(r"<h[1-6][^<>]*>([^<]*)", re.IGNORECASE)
_BOILERPLATE_NAME = re.compile(
    r"(?<![a-z])(?:cookies?|consent|gdpr|breadcrumbs?|navbar|navigation|sitemap|skip-?link|site-?footer|page-?footer)(?![a-z])",
    re.IGNORECASE,
)
"""Words in classes and ids of elements outside the main text."""
_MIN_MAIN_SHARE = 0.5
"""Removal by roles and names is used only if it leaves at least this share of the words that removal by elements leaves."""
_SPAN = re.compile(r"""\s(colspan|rowspan)\s*=\s*["']?\s*(\d{1,5})""", re.IGNORECASE)
_MAX_COLUMNS = 100
"""The maximum number of columns that a cell spans."""
_TABLE_EDGE = "\0"
"""A line where a table starts or ends; it occurs in no page."""
_TABLE_EDGES = re.compile(rf"\n*{_TABLE_EDGE}[\n{_TABLE_EDGE}]*")
_BETWEEN_TABLES = re.compile(rf"(?<=\|){_TABLE_EDGES.pattern}(?=\| )")
GAPS = {**dict.fromkeys(BLOCKS, "\n\n"), "li": "\n", "br": "\n", "option": "\n"}
"""The text that replaces the start and the end of an element; inline elements have none."""
_MARKS = {"sup": (RAISED, LOWERED), "mn": ("", APART)}
"""The marks at the start and end of an element: a superscript, or a number in an equation."""


def read(data: bytes, file: str) -> ParsedFile:
    """Title and main text of a file in UTF-8; UserError naming `file` for another encoding."""
    return main_text(decode_text(data, file))


def read_whole(data: bytes, file: str) -> ParsedFile:
    """Title and all visible text of a file in UTF-8; UserError naming `file` for another encoding."""
    return html_text(decode_text(data, file))


def html_text(markup: str) -> ParsedFile:
    """The title (<title>, else the first <h1>) and the visible text: blocks separated, table rows as `| cell | cell |`.

    Text appears once, in the innermost row: a table inside a cell splits the row around it.
    """
    (page,) = _collect(markup, [_Page()])
    return page.parsed()


def main_text(markup: str) -> ParsedFile:
    """As `html_text`, without boilerplate (navigation, dialogs, the page's footer, cookie notices), recognised by elements, roles and names.

    Only elements are used if roles and names would remove more than half of the remaining words; all text stays if elements would remove
    everything. If boilerplate recognised in one of these ways has no end tag, nothing is removed in that way.
    """
    by_name_in_page = partial(_by_name, slugs={_slug(heading) for heading in _HEADING_STARTS.findall(markup)})
    pages = _collect(markup, [_Page(), _Page(_by_element), _Page(by_name_in_page)])
    whole, by_element, by_name = (page.parsed() for page in pages)
    if pages[1].is_open or not by_element.text:
        by_element = whole
    is_plausible = not pages[2].is_open and len(by_name.text.split()) >= _MIN_MAIN_SHARE * len(by_element.text.split())
    return by_name if is_plausible and by_name.text else by_element


def _collect(markup: str, pages: "list[_Page]") -> "list[_Page]":
    for token in tokens(markup):
        for page in pages:
            if token.kind == "text":
                page.text(token.value)
            elif token.kind == "start":
                page.start(token)
            else:
                page.end(token.value)
    for page in pages:
        page.close()
    return pages


def _by_element(token: Token, in_main: bool) -> bool:
    """Whether a start tag begins boilerplate, by its element."""
    return token.value in BOILERPLATE or (token.value == "footer" and not in_main)


def _slug(heading: str) -> str:
    """The id that programs make from a heading.

    >>> _slug("Cookies & consent")
    'cookies-consent'
    """
    return "-".join(re.findall(r"\w+", heading.lower()))


def _by_name(token: Token, in_main: bool, slugs: Container[str]) -> bool:
    """Whether a start tag begins boilerplate, by its element, role, classes or id.

    In <main> and <article>, and on sections and headings, an id of one word or one made from a heading (`slugs`) may name the subject, so it is ignored.
    """
    if _by_element(token, in_main):
        return True
    if token.value not in (*BLOCKS, "a") or token.value in (*MAIN, "hr") or "=" not in token.tag:
        return False
    may_be_heading = in_main or token.value in ("section", *HEADINGS)
    names = ((key.lower() == "id", "".join(name)) for key, *name in _NAMES.findall(token.tag))
    return bool(_ROLES.search(token.tag)) or any(
        _BOILERPLATE_NAME.search(name) and not (is_id and may_be_heading and (name.isalpha() or name.lower() in slugs))
        for is_id, name in names
    )


class _Page:
    """Collects the text with its line breaks (`pieces`) and the candidates for the title; omits elements for whose start tag `omits` returns True."""

    def __init__(self, omits: Callable[[Token, bool], bool] = lambda token, in_main: False) -> None:
        self._omits = omits
        self._omitted, self._depth = "", 0
        """The name of the omitted element that is open, and the number of open elements of that name, including itself."""
        self._main = 0
        self.pieces: list[str] = []
        self.title, self.heading = _FirstText(), _FirstText()
        self._invisible: Counter[str] = Counter()
        self._rows: list[_Row] = []
        """The current row of each open table, outermost first."""
        self._repeatable = MAX_REPEATED
        self._depths: list[int] = []
        """The number of open elements in each open fraction, outermost first."""

    def parsed(self) -> ParsedFile:
        """The title and the text, with empty lines collapsed."""
        lines = [" ".join(line.split()) for line in resolve_marks("".join(self.pieces)).splitlines()]
        text = "\n".join(line for line, before in zip(lines, ["", *lines], strict=False) if line or before)
        text = _TABLE_EDGES.sub(GAP, _BETWEEN_TABLES.sub(TABLE_GAP, text)).strip()
        return ParsedFile(self.title.text or resolve_marks(self.heading.text), text)

    def start(self, token: Token) -> None:
        tag = token.value
        if tag in INVISIBLE:
            self._invisible[tag] += 1
        if self._omitted:
            self._depth += tag == self._omitted
        elif not self._hidden() and self._omits(token, self._main > 0):
            self._omitted, self._depth = tag, 1
            self._gap(tag)
        if self._hidden():
            return
        self._main += tag in MAIN
        if tag in HEADINGS:
            self.heading.close()
        if tag == "title":
            self.title.open()
        elif tag == "h1":
            self.heading.open()
        elif tag in ("table", "tr", "td", "th"):
            self._start_table_part(token)
        self._start_fraction_part(token)
        self._gap(tag)
        if tag in _MARKS:
            self._put(_MARKS[tag][0])

    def end(self, tag: str) -> None:
        if self._invisible[tag]:
            self._invisible[tag] -= 1
        if tag == self._omitted:
            self._depth -= 1
            self._omitted = self._omitted if self._depth else ""
            return
        if self._hidden():
            return
        self._main -= tag in MAIN and self._main > 0
        if tag == "title":
            self.title.close()
        elif tag in HEADINGS:
            self.heading.close()
        elif tag in ("table", "tr") and self._rows:
            self._end_row()
            if tag == "table":
                self._rows.pop()
                self.pieces.append(f"\n{_TABLE_EDGE}\n")
        self._gap(tag)
        if tag in _MARKS:
            self._put(_MARKS[tag][1])
        self._end_fraction_part(tag)

    def text(self, text: str) -> None:
        if self._hidden():
            return
        if self.title.is_open:
            self.title.pieces.append(text)
            return
        self._put(text)

    @property
    def is_open(self) -> bool:
        """Whether an omitted element has not ended."""
        return bool(self._omitted)

    def close(self) -> None:
        """End the tables that are still open."""
        while self._rows:
            self._end_row()
            self._rows.pop()

    def _hidden(self) -> bool:
        return bool(self._omitted) or any(self._invisible.values())

    def _start_table_part(self, token: Token) -> None:
        tag = token.value
        if tag in ("table", "tr") and self._rows:
            self._end_row()
        if tag == "table" or not self._rows:
            self._rows.append(_Row())
        if tag == "table":
            self.pieces.append(f"\n{_TABLE_EDGE}\n")
        if tag in ("td", "th"):
            self._rows[-1].cells.append(_Cell.of(token.tag))

    def _end_row(self) -> None:
        is_filled = any("".join(cell.pieces).strip() for cell in self._rows[-1].cells)
        texts, repeated = self._rows[-1].end(self._repeatable)
        self._repeatable -= repeated
        if is_filled:
            self.pieces.append(f"\n{table_row(texts)}\n")

    def _start_fraction_part(self, token: Token) -> None:
        if token.value == "math":
            self._depths = []
        elif self._depths and not token.tag.endswith("/>"):
            if not self._depths[-1]:
                self._put(PART)
            self._depths[-1] += 1
        if token.value == "mfrac":
            self._put(APART)
            self._depths.append(0)

    def _end_fraction_part(self, tag: str) -> None:
        if tag == "math":
            self._depths = []
        if tag == "mfrac" and self._depths:
            self._depths.pop()
        if self._depths:
            self._depths[-1] -= 1
            if not self._depths[-1]:
                self._put(PART_END)

    def _gap(self, tag: str) -> None:
        if tag in GAPS:
            self._put(GAPS[tag])

    def _put(self, piece: str) -> None:
        if self.heading.is_open:
            self.heading.pieces.append(piece)
        cells = self._rows[-1].cells if self._rows else []
        (cells[-1].pieces if cells else self.pieces).append(piece)


class _Cell(NamedTuple):
    """A cell: its text in pieces, and how many columns and rows it spans."""

    pieces: list[str]
    columns: int
    rows: int

    @classmethod
    def of(cls, tag: str) -> "_Cell":
        spans = {name.lower(): int(number) for name, number in _SPAN.findall(tag)}
        return cls([], min(max(1, spans.get("colspan", 1)), _MAX_COLUMNS), spans.get("rowspan", 1))


class _Row:
    """The current row of a table: its cells, and by column the texts of the cells above that span it, with the rows that they still span."""

    def __init__(self) -> None:
        self.cells: list[_Cell] = []
        self._above: dict[int, tuple[str, int]] = {}

    def end(self, repeatable: int) -> tuple[list[str], int]:
        """End the row; return its texts and the number of repeated characters.

        A cell's text appears in each column that the cell spans, unless it is the only cell. After more than `repeatable` repeated
        characters, nothing more is repeated.
        """
        cells, self.cells = self.cells, []
        own = ["".join(cell.pieces).strip() for cell in cells]
        if not cells:
            return own, 0
        texts, below, repeated = list[str](), dict[int, tuple[str, int]](), 0
        for text, cell in zip([*own, ""], [*cells, _Cell([], 0, 1)], strict=True):
            while len(texts) in self._above:
                spanning, rows = self._above[len(texts)]
                repeated += len(spanning) + 3
                if repeated > repeatable:
                    self._above = {}
                elif rows > 1:
                    below[len(texts)] = spanning, rows - 1
                texts.append(spanning)
            is_only = len(cells) == 1 and not self._above
            fitting = 1 + max(0, repeatable - repeated) // (len(text) + 3)
            columns = min(cell.columns, 1 if is_only else fitting)
            if cell.rows > 1:
                below |= dict.fromkeys(range(len(texts), len(texts) + columns), (text, cell.rows - 1))
            texts += [text] * columns
            repeated += (columns - 1) * (len(text) + 3) if columns else 0
        self._above = below
        return texts, repeated


class _FirstText:
    """The text of the first element with a given tag."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.is_open = self._was_opened = False

    def open(self) -> None:
        self.is_open, self._was_opened = self.is_open or not self._was_opened, True

    def close(self) -> None:
        self.is_open = False

    @property
    def text(self) -> str:
        return " ".join("".join(self.pieces).split())
