"""The visible text of an HTML page, in one pass over its tags: no tree is built, so cost is linear however deep they nest."""

from collections import Counter

from graph.documents.parse.markup import tokens
from graph.documents.parse.plain import decode_text, table_row
from graph.documents.parse.types import Parsed

UNSEEN = ("script", "style", "noscript", "template")
HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
BLOCKS = (
    *("p", "div", "section", "article", "ul", "ol", "table", *HEADINGS, "header", "footer", "main", "nav", "aside"),
    *("blockquote", "pre", "dl", "dt", "dd", "figure", "figcaption", "caption", "address", "form", "fieldset", "hr"),
)
GAPS = {**dict.fromkeys(BLOCKS, "\n\n"), "li": "\n", "br": "\n"}
"""What stands for the start and the end of an element; nothing for those that run on in a line."""


def read(data: bytes, file: str) -> Parsed:
    """Title and text of a file in UTF-8; UserError naming `file` for another encoding."""
    return html_text(decode_text(data, file))


def html_text(markup: str) -> Parsed:
    """The title (<title>, else the first <h1>) and the visible text: blocks apart, a table's rows as `| cell | cell |`.

    Text stands once, in the innermost row that holds it: a table inside a cell divides the row around it.
    """
    page = _Page()
    for kind, value in tokens(markup):
        if kind == "text":
            page.text(value)
        elif kind == "start":
            page.start(value)
        else:
            page.end(value)
    page.close()
    lines = [" ".join(line.split()) for line in "".join(page.pieces).splitlines()]
    text = "\n".join(line for line, before in zip(lines, ["", *lines], strict=False) if line or before).strip()
    return Parsed(page.title.text or page.heading.text, text)


class _Page:
    """Collects `pieces`, the text with its line ends, and what could be the title."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.title, self.heading = _First(), _First()
        self._unseen: Counter[str] = Counter()
        self._rows: list[list[list[str]]] = []
        """The row begun in each table that is open, outermost first: its cells, each of pieces."""

    def start(self, tag: str) -> None:
        if tag in UNSEEN:
            self._unseen[tag] += 1
        if self._hidden():
            return
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
        if self._hidden():
            return
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

    def close(self) -> None:
        """End the tables that were left open."""
        while self._rows:
            self._end_row()
            self._rows.pop()

    def _hidden(self) -> bool:
        return any(self._unseen.values())

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
