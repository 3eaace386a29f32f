"""Citations in text: numbers in brackets. Those without a passage are removed; those that only repeat the prompt are not counted (`own_citations`)."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

from graph.answer.prompt import PROMPTS, parse_answer
from graph.text.prompting import read_prompt
from graph.text.replies import without_thinking

MAX_RANGE = 100
"""[a-b] cites every number from a to b if the range has at most this size, else only a and b: a longer range is hardly ever meant as a citation."""
MAX_NUMBER = 999_999_999
_NAMES = (
    *("p", "pp", "page", "pages", "passage", "passages", "source", "sources", "ref", "refs", "reference", "references"),
    *("doc", "docs", "document", "documents", "citation", "citations", "cite", "cited", "note", "notes", "fn", "n"),
    *("no", "nr", "number", "see", "cf"),
)
"""Words that may precede a cited number."""
_CONNECTIVES = ("and", "to", "und", "bis", "et")
_NAME = "|".join(sorted(_NAMES, key=len, reverse=True))
_PREFIX = rf"(?:(?:{_NAME})(?![^\W\d_])[.:]? ?){{0,3}}[\^#№§@†‡]? ?"
_ITEM = rf"{_PREFIX}\d+(?: ?(?:[-‐-―−~〜]|\.{{2,3}}|to|bis) ?{_PREFIX}\d+)?"
_LIST = re.compile(rf"{_ITEM}(?:(?: ?[,;、/|&] ?| (?:(?:and|und|et) )?){_ITEM})*[.,;:]?")
_NO_LIST = re.compile(r"(?:1[5-9]|20)\d\d ?- ?(?:0[1-9]|1[0-2])|0 ?[-–,;] ?\d+|\d+(?: ?/ ?\d+)+")
"""A year and month, an interval from 0, a fraction or a date."""
_SPAN = re.compile(r"(\d+)(?: ?(?:[-‐-―−~〜]|\.{2,3}|to|bis) ?[^\d,;]*?(\d+))?")
_LOCATOR = re.compile(r"(?<=\d)(?: ?: ?\d+)? ?[†‡].*", re.DOTALL)
"""A position in a source, as some assistants write it: 【9:0†source】."""
_TAG = re.compile(r"<[^<>]*>")
_MARKUP = str.maketrans("", "", "*_`\\$\"'")
_IGNORED = frozenset({"Cf", "Cc", "Cn", "Co", "Mn", "Me"})
_LETTERS = re.compile(r"[^\W\d_]+")


@lru_cache(maxsize=4096)
def cited_numbers(body: str) -> tuple[int, ...]:
    """The numbers that a bracket around `body` cites, in order; empty if the bracket is not a citation.

    >>> cited_numbers("1, ９"), cited_numbers("p. 2–4"), cited_numbers("9†source"), cited_numbers("x1"), cited_numbers("2019-05-03")
    ((1, 9), (2, 3, 4), (9,), (), ())
    >>> cited_numbers("2019-05"), cited_numbers("0, 1"), cited_numbers("3/5"), cited_numbers("3+2")
    ((), (), (), ())
    """
    bare = _LOCATOR.sub("", _bare(body))
    return tuple(_numbers(bare)) if _LIST.fullmatch(bare) and not _NO_LIST.fullmatch(bare) else ()


def may_cite(beginning: str) -> bool:
    """Whether a bracket that starts with `beginning` can still become a citation."""
    bare = _bare(beginning)
    word = _LETTERS.search(bare)
    if word is None or any(mark in beginning for mark in "<&†‡"):
        return True
    known = (*_NAMES, *_CONNECTIVES)
    return word[0] in known if word.end() < len(bare) else any(name.startswith(word[0]) for name in known)


def _bare(body: str) -> str:
    """`body` as rendered, case-folded: entities and wide forms resolved; no tags, emphasis or invisible characters; single spaces."""
    plain = unicodedata.normalize("NFKC", _TAG.sub("", html.unescape(body))).translate(_MARKUP).replace("~~", "")
    visible = "".join(
        " " if character.isspace() else character
        for character in plain
        if character.isspace() or unicodedata.category(character) not in _IGNORED
    )
    return " ".join(visible.split()).casefold()


def _numbers(bare: str) -> Iterator[int]:
    for first, last in _SPAN.findall(bare):
        low, high = (min(int(digits), MAX_NUMBER) for digits in (first, last or first))
        yield from range(low, high + 1) if low <= high < low + MAX_RANGE else (low, high)


OPENERS = "[⁅❲⟦⟬⦋⦍⦏⦗⸢⸤⹕⹗【〔〖〘〚︗︹︻﹇﹝［"
CLOSERS = "]⁆❳⟧⟭⦌⦎⦐⦘⸣⸥⹖⹘】〕〗〙〛︘︺︼﹈﹞］"
MAX_PENDING_CHARS = 200
"""A bracket or inline code that is not closed within this many characters is plain text; so is code not closed by the end of its line."""
_ELLIPSIS = "…"
"""Replaces a removed citation where its neighbours would otherwise join into another citation ("[[9]7]") or into code; also follows an opening
bracket that could still begin a citation but is not closed within MAX_PENDING_CHARS."""
_CONTEXT_CHARS = 40

_SPACE = r"[^\S\n]"
_OPEN = rf"\\?[{re.escape(OPENERS)}]|&(?:#0{{0,6}}91|#[xX]0{{0,6}}5[bB]|lbrack|lsqb);"
_CLOSE = rf"\\?[{re.escape(CLOSERS)}]|&(?:#0{{0,6}}93|#[xX]0{{0,6}}5[dD]|rbrack|rsqb);"
_FENCE = r"(?<![^\n]) {0,3}(?P<fence>`{3,99}(?!`)|~{3,99}(?!~))[^\n`]{0,99}\n"
_TICKS = r"(?<![`\\])`{1,99}(?!`)"
_TOKEN = re.compile(
    rf"{_FENCE}|(?P<ticks>{_TICKS})|(?P<space>{_SPACE}?)(?P<open>{_OPEN})|(?P<close>{_CLOSE})|(?P<blank>(?<=\n)\n)"
)
_BRACKET_END = re.compile(rf"(?P<close>{_CLOSE})|{_OPEN}|\n{_SPACE}*\n")
_UNDECIDED = re.compile(
    r"(?:(?<![^\n]) {0,3}(?:[`~]{0,99}|(?:`{3,99}|~{3,99})[^\n`]{0,99})"
    rf"|(?<!`)`{{1,99}}|{_SPACE}?(?:\\|&[#\w]{{0,12}})?)\Z"
)
"""The end of a text that may be the start of a token, or a space that is removed if a citation without a passage follows."""
_TAIL_CHARS = 2 * MAX_PENDING_CHARS

_NUMBER = re.compile(r"\[\d+\]")
_YEAR = re.compile(r"\[(?:1[5-9]|20)\d\d\]")
_REPORT = re.compile(
    rf"{_SPACE}(?:\d{{1,3}}{_SPACE})?(?:All{_SPACE})?[A-Z][A-Z.]{{1,7}}(?:{_SPACE}[A-Z][A-Za-z]{{1,8}})?{_SPACE}\d"
)
"""The text after the year in the citation of a law report: volume, court or series, number or page."""
_REPORT_CHARS = 32
_VARIABLE = re.compile(rf"(?P<assigned>={_SPACE}?)?(?<!\w)[A-Za-z_]\w{{0,20}}(?:\[\d{{1,4}}\]){{0,2}}\Z", re.ASCII)
_ASSIGNS = re.compile(rf"(?:\[\d{{1,4}}\]){{0,2}}{_SPACE}?=")
_INTERVAL = re.compile(r"\[\d+ ?[-–,;] ?\d+\]", re.ASCII)
_BEFORE_INTERVAL = re.compile(
    rf"(?:\b(?:(?:the|an?) (?:range|interval)(?: of| from)?|(?:lies?|falls?) (?:in|within)|between)|∈){_SPACE}?\Z",
    re.IGNORECASE,
)
_DISPLAY = re.compile(r"\\\[\s.*\s\\\]", re.DOTALL)
"""Mathematics on a line of its own: \\[ 42 \\]. In a citation, no space follows the bracket: \\[2\\]."""
_LINKS = re.compile(r"[(:]|\[(?!\d)")
_SUBSCRIPT_CHARS = 16
_VISIBLE = re.compile(r"[^\u00ad\u034f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")
"""Any character but invisible formatting ones, which some clients strip before they parse Markdown."""


@dataclass(frozen=True)
class CheckedText:
    """Text that cites only existing passages: `cited` are their numbers in order of first use, `removed` the numbers without a passage."""

    text: str
    cited: tuple[int, ...]
    removed: tuple[int, ...]


class Mark(NamedTuple):
    """A citation of passage `number` in the output: characters start to end are its [n]."""

    number: int
    start: int
    end: int

    def shifted(self, characters: int) -> Mark:
        """The same mark, `characters` further on."""
        return Mark(self.number, self.start + characters, self.end + characters)


def check_citations(text: str, passages: int) -> CheckedText:
    """A complete text with citations of passages 1 to `passages` written as [n], and citations of other numbers removed.

    >>> check_citations("So [1, 9] and ［2］.", 2)
    CheckedText(text='So [1] and [2].', cited=(1, 2), removed=(9,))
    """
    gate = CitationGate(passages)
    shown = gate.feed(text) + gate.finish()
    return CheckedText(shown, gate.cited, gate.removed)


def short_answer(text: str) -> str:
    """The answer in a response of any form, without citations, on one line.

    >>> short_answer("###Reason: So [1]. ###Answer: Tarn"), short_answer("Tarn [2]"), short_answer("")
    ('Tarn', 'Tarn', '')
    """
    return " ".join(check_citations(parse_answer(text).answer, 0).text.split())


class CitationGate:
    """Streams text, and checks every citation against `passages` numbered passages.

    The output does not depend on how the text is split into pieces.
    """

    def __init__(self, passages: int) -> None:
        self._passages = passages
        self._context = ""
        self._pending = ""
        self._fence = ""
        self._output = _Output()
        self._cited: dict[int, None] = {}
        self._removed: dict[int, None] = {}

    @property
    def cited(self) -> tuple[int, ...]:
        """The numbers of existing passages cited so far, in order of first use."""
        return tuple(self._cited)

    @property
    def removed(self) -> tuple[int, ...]:
        """The cited numbers without a passage, in order of first use."""
        return tuple(self._removed)

    @property
    def marks(self) -> tuple[Mark, ...]:
        """The citations in the output so far, in order."""
        return tuple(self._output.marks)

    @property
    def shown(self) -> str:
        return "".join(self._output.parts)

    def feed(self, piece: str) -> str:
        """The output that `piece` completes; text that may still become a citation waits for the next piece."""
        return self._take(piece, final=False)

    def finish(self) -> str:
        """The remaining output, at the end of the text."""
        return self._take("", final=True)

    def _take(self, piece: str, final: bool) -> str:
        text, written = self._context + self._pending + piece, len(self._output.parts)
        end = self._read(text, len(self._context), final)
        self._context, self._pending = text[max(0, end - _CONTEXT_CHARS) : end], text[end:]
        return "".join(self._output.parts[written:])

    def _read(self, text: str, at: int, final: bool) -> int:
        """Write the decided part of text[at:] to the output; return the offset where the undecided part begins."""
        end = len(text)
        if not final:
            undecided = _UNDECIDED.search(text, max(at, end - _TAIL_CHARS))
            end = undecided.start() if undecided is not None else end
        while at < end:
            if self._fence:
                at = self._read_fenced(text, at, end)
                continue
            token = _TOKEN.search(text, at, end)
            self._output.put(text[at : token.start() if token is not None else end])
            if token is None:
                break
            after = self._read_token(token, text, end, final)
            if after is None:
                return token.start()
            at = after
        return end

    def _read_fenced(self, text: str, at: int, end: int) -> int:
        """Copy a line of a fenced code block, and end the block if the line is its closing fence; return the end of the line."""
        line_end = text.find("\n", at, end) + 1 or end
        line_start = text.rfind("\n", 0, at) + 1
        if re.fullmatch(rf" {{0,3}}{self._fence[0]}{{{len(self._fence)},}}{_SPACE}*\n?", text[line_start:line_end]):
            self._fence = ""
        self._output.put(text[at:line_end])
        return line_end

    def _read_token(self, token: re.Match[str], text: str, end: int, final: bool) -> int | None:
        """Write a token and the code or citation that it begins; return the offset after them, None while undecided."""
        if token["fence"]:
            self._fence = token["fence"]
        elif token["ticks"]:
            return self._read_code(token, text, end, final)
        elif token["open"]:
            return self._read_bracket(token, text, end, final)
        elif token["close"]:
            self._output.close(token["close"])
            return token.end()
        elif token["blank"]:
            self._output.new_paragraph()
        self._output.put(token[0])
        return token.end()

    def _read_code(self, token: re.Match[str], text: str, end: int, final: bool) -> int | None:
        """Copy inline code between equal runs of backticks on one line; without a second run the first is plain text."""
        limit = min(end, token.end() + MAX_PENDING_CHARS)
        line_end = text.find("\n", token.end(), limit)
        closing = re.compile(rf"(?<!`){token[0]}(?!`)").search(text, token.end(), line_end if line_end >= 0 else limit)
        if closing is not None and not (closing.end() == limit == token.end() + MAX_PENDING_CHARS):
            self._output.put(text[token.start() : closing.end()])
            return closing.end()
        if line_end < 0 and limit < token.end() + MAX_PENDING_CHARS and not final:
            return None
        self._output.put(token[0])
        return token.end()

    def _read_bracket(self, token: re.Match[str], text: str, end: int, final: bool) -> int | None:
        """Write a citation as [n] for each of its numbers that has a passage, or remove it if none has; copy a bracket that is not a citation.

        Return the offset in `text` to continue from, None while undecided.
        """
        start, limit = token.end(), min(end, token.end() + MAX_PENDING_CHARS)
        closing = _BRACKET_END.search(text, start, limit)
        body = text[start : closing.start() if closing is not None else limit]
        if closing is None and may_cite(body):
            if limit - start < MAX_PENDING_CHARS and not final:
                return None
            if limit - start == MAX_PENDING_CHARS:
                self._output.put(token[0] + _ELLIPSIS)
                return token.end()
        numbers = cited_numbers(body) if closing is not None and closing["close"] else ()
        if not numbers or closing is None:
            self._output.open(token["space"], token["open"])
            return token.end()
        is_plain = _is_no_citation(text, token.start("open"), closing.end(), end, final)
        if is_plain is None:
            return None
        if is_plain:
            self._output.put(text[token.start() : closing.end()])
            return closing.end()
        self._cite(token["space"], numbers)
        return closing.end()

    def _cite(self, space: str, numbers: tuple[int, ...]) -> None:
        existing = [number for number in dict.fromkeys(numbers) if 1 <= number <= self._passages]
        self._cited.update(dict.fromkeys(existing))
        self._removed.update(dict.fromkeys(number for number in numbers if number not in existing))
        if existing:
            self._output.cite(space, existing)
        else:
            self._output.remove()


class _Output:
    """Parts of the output, joined so that no citation becomes a Markdown link and no new citation arises.

    `_depth` brackets are open, and the outermost `_citing_depth` of them contain a citation. `_closed` is true right after the end of a
    bracket that is, or contains, a citation.
    """

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.marks: list[Mark] = []
        self._chars = self._depth = self._citing_depth = 0
        self._closed = False

    def put(self, text: str) -> None:
        """Append text, with a space inserted where `[1](http://…)`, `[1]: http://…` or `[1][x]` would become a link."""
        if not text:
            return
        visible = _VISIBLE.search(text)
        if self._closed and visible is not None and visible[0] in "([:":
            text = f"{text[: visible.start()]} {text[visible.start() :]}"
        self._append(text)
        self._closed = self._closed and visible is None

    def new_paragraph(self) -> None:
        """Forget open brackets: no link continues after an empty line."""
        self._depth = self._citing_depth = 0

    def open(self, space: str, bracket: str) -> None:
        """Append a bracket that opens no citation."""
        self.put(space + bracket)
        self._depth += 1

    def close(self, bracket: str) -> None:
        """Append a bracket that closes no citation; the pair may contain citations."""
        self.put(bracket)
        self._closed = 0 < self._depth <= self._citing_depth
        self._depth = max(0, self._depth - 1)
        self._citing_depth = min(self._citing_depth, self._depth)

    def cite(self, space: str, numbers: Sequence[int]) -> None:
        """Append consecutive citations, each as [n]."""
        self.put(space)
        for number in numbers:
            start = self._chars
            self._append(f"[{number}]")
            self.marks.append(Mark(number, start, self._chars))
        self._citing_depth, self._closed = self._depth, True

    def remove(self) -> None:
        """Leave a citation out: append nothing, or an ellipsis where its neighbours could join into a citation (within brackets) or code (after a backtick)."""
        if self._depth or (self.parts and self.parts[-1].endswith("`")):
            self.put(_ELLIPSIS)

    def _append(self, text: str) -> None:
        self.parts.append(text)
        self._chars += len(text)


def _is_no_citation(text: str, start: int, stop: int, end: int, final: bool) -> bool | None:
    """Whether the bracket text[start:stop] is display mathematics, an interval after words that announce one, a subscript in an assignment, or the year of
    a law report; None while undecided.
    """
    bracket, following, before = text[start:stop], text[stop:end], text[max(0, start - _CONTEXT_CHARS) : start]
    open_ended = not final and "\n" not in following
    if _DISPLAY.fullmatch(bracket):
        return True
    if _INTERVAL.fullmatch(bracket) and _BEFORE_INTERVAL.search(before):
        return None if open_ended and not following else not _LINKS.match(following)
    if not bracket.isascii() or not _NUMBER.fullmatch(bracket):
        return False
    variable = _VARIABLE.search(before)
    if variable is not None:
        if open_ended and len(following) < _SUBSCRIPT_CHARS:
            return None
        assigns = bool(variable["assigned"]) or _ASSIGNS.match(following) is not None
        return assigns and not _LINKS.match(following)
    if _YEAR.fullmatch(bracket):
        if open_ended and len(following) < _REPORT_CHARS:
            return None
        return _REPORT.match(following) is not None
    return False


REPEATED_WORDS = 4
"""A citation that follows this many consecutive words of the prompt counts as repeated from the prompt; where only two or three words precede it,
after the beginning of the text or another bracket, these are enough."""
_JOINED_CITATION = re.compile(r"\[\d+\](?:[\s,;&/]|and|or)*\Z")
"""A citation separated from the next only by punctuation, "and" or "or"."""
_BEFORE_CHARS = 300


class Citations(NamedTuple):
    """Distinct cited numbers: those of passages in the prompt, and those that no passage has."""

    existing: tuple[int, ...]
    missing: tuple[int, ...]


def own_citations(response: str, passages: int) -> Citations:
    """The citations of a response to a prompt with `passages` passages, without those that repeat the prompt.

    >>> own_citations("The ferry sank [2], says [7].", 2)
    Citations(existing=(2,), missing=(7,))
    >>> own_citations("###Reason: The reasoning, citing passages by number like [1] and [2]. ###Answer: Tarn [2]", 2)
    Citations(existing=(2,), missing=())
    """
    gate = CitationGate(MAX_NUMBER)
    text = gate.feed(without_thinking(response)) + gate.finish()
    response_numbers = [
        mark.number for mark in gate.marks if not _repeats_prompt(text[max(0, mark.start - _BEFORE_CHARS) : mark.start])
    ]
    numbers = tuple(dict.fromkeys((*response_numbers, *gate.removed)))
    existing = tuple(number for number in numbers if 1 <= number <= passages)
    return Citations(existing, tuple(number for number in numbers if number not in existing))


def _repeats_prompt(before: str) -> bool:
    """Whether the words before a citation repeat the prompt."""
    while joined := _JOINED_CITATION.search(before):
        before = before[: joined.start()]
    words = _letter_runs(before.rpartition("]")[2])[-REPEATED_WORDS:]
    return len(words) > 1 and f" {' '.join(words)} " in _words_of_citing_lines()


@cache
def _words_of_citing_lines() -> str:
    """The words of those lines of the prompts that contain a citation, with single spaces between and around the words."""
    lines = [line for prompt in PROMPTS.values() for line in read_prompt(prompt).splitlines()]
    return "".join(f" {' '.join(_letter_runs(line))} " for line in lines if "[1]" in line)


def _letter_runs(text: str) -> list[str]:
    return _LETTERS.findall(text.casefold())
