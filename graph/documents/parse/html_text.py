"""HTML to text: tags and text in time linear in the page's length, then its main part without navigation.

A search that failed once is not made again: the standard library's parser and libxml2 look for missing ends again and again (1 MB of `<!--`
or of `<b></i>` takes them minutes). Attributes are not taken apart; what has no end is text."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from html import unescape
from typing import Literal, NamedTuple

from graph.documents.parse.formats import ParsedFile
from graph.documents.parse.plain import decode_text, table_row

Kind = Literal["start", "end", "text"]

_TAG = re.compile(r"""<(/?)([a-zA-Z][^\s/>]*+)(?:[^>=]++|=\s*+(?:"[^"]*"|'[^']*')?)*+>""")
_OPENS = re.compile(r"<(?:(?P<comment>!--)|(?P<other>[!?]|/[^a-zA-Z])|/?[a-zA-Z])")
_COMMENT_ENDS, _ENDS = re.compile("-->"), re.compile(">")
_RAW = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in ("script", "style", "title", "textarea")}
"""Elements without elements inside, and how they end. Without an end scripts and styles take the rest of the page along."""
_SCRIPTS = ("script", "style")
_LONG_NUMBER = re.compile(r"&#[0-9]{9,}+;?")


class Token(NamedTuple):
    """A tag by its name in lower case, or some text with its entities resolved; `tag` is the start tag as it stands."""

    kind: Kind
    value: str
    tag: str = ""


def tokens(markup: str) -> Iterator[Token]:
    """What a page consists of.

    >>> [token[:2] for token in tokens('<P class="a>b">1 &lt; 2<br/></p')]
    [('start', 'p'), ('text', '1 < 2'), ('start', 'br'), ('text', '</p')]
    """
    search, place = _Search(markup), 0
    while (found := markup.find("<", place)) >= 0:
        if found > place:
            yield Token("text", _resolved(markup[place:found]))
        place = found
        opens = _OPENS.match(markup, found)
        if opens is None:
            yield Token("text", "<")
            place += 1
        elif opens["comment"]:
            ends = search.find(_COMMENT_ENDS, found + 2)
            place = ends.end() if ends else opens.end()
        elif opens["other"]:
            ends = search.find(_ENDS, found)
            if ends is None:
                break
            place = ends.end()
        elif (tag := _TAG.match(markup, found)) is None:
            break
        else:
            name, place = tag[2].lower(), tag.end()
            if name not in _RAW or tag[1]:
                yield Token("end", name) if tag[1] else Token("start", name, tag[0])
            elif not tag[0].endswith("/>"):
                ends = search.find(_RAW[name], place)
                if ends is not None:
                    yield Token("start", name, tag[0])
                    yield Token("text", _resolved(markup[place : ends.start()]))
                    place = ends.start()
                elif name in _SCRIPTS:
                    return
    if place < len(markup):
        yield Token("text", _resolved(markup[place:]))


class _Search:
    """Searches forward in one text, from places that only grow."""

    def __init__(self, text: str) -> None:
        self._text, self._in_vain = text, set[re.Pattern[str]]()

    def find(self, pattern: re.Pattern[str], place: int) -> re.Match[str] | None:
        """The first match from `place` on, or None."""
        found = None if pattern in self._in_vain else pattern.search(self._text, place)
        if found is None:
            self._in_vain.add(pattern)
        return found


def _resolved(text: str) -> str:
    """Text with its entities; a number that is no character's, however long, becomes U+FFFD."""
    return unescape(_LONG_NUMBER.sub("\ufffd", text)) if "&" in text else text


UNSEEN = ("script", "style", "noscript", "template")
HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
BLOCKS = (
    *("p", "div", "section", "article", "ul", "ol", "table", *HEADINGS, "header", "footer", "main", "nav", "aside"),
    *("blockquote", "pre", "dl", "dt", "dd", "figure", "figcaption", "caption", "address", "form", "fieldset", "hr"),
)
MAIN = ("main", "article")
"""Elements that may have a footer of their own."""
FURNITURE = ("nav", "dialog")
"""Elements that are no part of a text, beside a footer that is the page's."""
_ROLES = re.compile(r"""\srole\s*=\s*["']?(?:navigation|contentinfo|dialog|alertdialog|search)\b""", re.IGNORECASE)
_NAMES = re.compile(r"""\s(?:class|id)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>"']+))""", re.IGNORECASE)
_FURNITURE_NAME = re.compile(
    r"(?<![a-z])(?:cookies?|consent|gdpr|breadcrumbs?|navbar|navigation|sitemap|skip-?link|site-?footer|page-?footer)(?![a-z])",
    re.IGNORECASE,
)
"""Words in classes and ids of what stands around a text."""
_LEAST_MAIN = 0.5
"""What has less than so much of a page's words left was taken apart wrongly."""
GAPS = {**dict.fromkeys(BLOCKS, "\n\n"), "li": "\n", "br": "\n"}
"""What stands for the start and the end of an element; nothing for those that run on in a line."""


def read(data: bytes, file: str) -> ParsedFile:
    """Title and main text of a file in UTF-8; UserError naming `file` for another encoding."""
    return main_text(decode_text(data, file))


def read_whole(data: bytes, file: str) -> ParsedFile:
    """Title and all visible text of a file in UTF-8; UserError naming `file` for another encoding."""
    return html_text(decode_text(data, file))


def html_text(markup: str) -> ParsedFile:
    """The title (<title>, else the first <h1>) and the visible text: blocks apart, a table's rows as `| cell | cell |`.

    Text stands once, in the innermost row that holds it: a table inside a cell divides the row around it.
    """
    (page,) = _read(markup, [_Page()])
    return page.parsed()


def main_text(markup: str) -> ParsedFile:
    """As `html_text`, without what stands around the main text, by elements, roles and names; where these leave less than half of the
    words, by elements alone; where those leave nothing, all of it. What has no end is not left out.
    """
    pages = _read(markup, [_Page(), _Page(_by_element), _Page(_by_name)])
    whole, by_element, by_name = (page.parsed() for page in pages)
    if pages[1].is_open or not by_element.text:
        by_element = whole
    named = not pages[2].is_open and len(by_name.text.split()) >= _LEAST_MAIN * len(by_element.text.split())
    return by_name if named and by_name.text else by_element


def _read(markup: str, pages: "list[_Page]") -> "list[_Page]":
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


def _nothing(token: Token, in_main: bool) -> bool:
    return False


def _by_element(token: Token, in_main: bool) -> bool:
    """Whether a start tag begins what stands around the main text."""
    return token.value in FURNITURE or (token.value == "footer" and not in_main)


def _by_name(token: Token, in_main: bool) -> bool:
    """The same, by its role, classes and id too."""
    if _by_element(token, in_main):
        return True
    if token.value not in (*BLOCKS, "a") or token.value in (*MAIN, "hr") or "=" not in token.tag:
        return False
    names = (" ".join(found) for found in _NAMES.findall(token.tag))
    return bool(_ROLES.search(token.tag)) or any(map(_FURNITURE_NAME.search, names))


class _Page:
    """Collects `pieces`, the text with its line ends, and what could be the title; elements whose start tag `leaves_out` are left out."""

    def __init__(self, leaves_out: Callable[[Token, bool], bool] = _nothing) -> None:
        self._leaves_out = leaves_out
        self._left_out, self._depth = "", 0
        """The element that is left out, and how many of its name are open in it."""
        self._main = 0
        self.pieces: list[str] = []
        self.title, self.heading = _First(), _First()
        self._unseen: Counter[str] = Counter()
        self._rows: list[list[list[str]]] = []
        """The row begun in each table that is open, outermost first: its cells, each of pieces."""

    def parsed(self) -> ParsedFile:
        """What was collected."""
        lines = [" ".join(line.split()) for line in "".join(self.pieces).splitlines()]
        text = "\n".join(line for line, before in zip(lines, ["", *lines], strict=False) if line or before).strip()
        return ParsedFile(self.title.text or self.heading.text, text)

    def start(self, token: Token) -> None:
        tag = token.value
        if tag in UNSEEN:
            self._unseen[tag] += 1
        if self._left_out:
            self._depth += tag == self._left_out
        elif not self._hidden() and self._leaves_out(token, self._main > 0):
            self._left_out, self._depth = tag, 1
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
            self._start_table_part(tag)
        self._gap(tag)

    def end(self, tag: str) -> None:
        if self._unseen[tag]:
            self._unseen[tag] -= 1
        if tag == self._left_out:
            self._depth -= 1
            self._left_out = self._left_out if self._depth else ""
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
        self._gap(tag)

    def text(self, text: str) -> None:
        if self._hidden():
            return
        if self.title.is_open:
            self.title.pieces.append(text)
            return
        if self.heading.is_open:
            self.heading.pieces.append(text)
        self._put(text)

    @property
    def is_open(self) -> bool:
        """Whether an element that is left out has not ended."""
        return bool(self._left_out)

    def close(self) -> None:
        """End the tables that were left open."""
        while self._rows:
            self._end_row()
            self._rows.pop()

    def _hidden(self) -> bool:
        return bool(self._left_out) or any(self._unseen.values())

    def _start_table_part(self, tag: str) -> None:
        if tag in ("table", "tr") and self._rows:
            self._end_row()
        if tag == "table" or not self._rows:
            self._rows.append([])
        if tag in ("td", "th"):
            self._rows[-1].append([])

    def _end_row(self) -> None:
        cells = ["".join(cell).strip() for cell in self._rows[-1]]
        self._rows[-1] = []
        if any(cells):
            self.pieces.append(f"\n{table_row(cells)}\n")

    def _gap(self, tag: str) -> None:
        if tag in GAPS:
            self._put(GAPS[tag])

    def _put(self, piece: str) -> None:
        (self._rows[-1][-1] if self._rows and self._rows[-1] else self.pieces).append(piece)


class _First:
    """The text of the first element of a kind."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.is_open = self._seen = False

    def open(self) -> None:
        self.is_open, self._seen = self.is_open or not self._seen, True

    def close(self) -> None:
        self.is_open = False

    @property
    def text(self) -> str:
        return " ".join("".join(self.pieces).split())
