"""A text without the sentences that its passages do not support: whole, or as it comes.

What is cut takes its blanks along: of a line that has nothing left but the mark of a list item, the line; of a paragraph, the empty line
behind it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from graph.extract.units import HEADING, LIST_ITEM, is_row
from graph.prompt.citations import Mark
from graph.verify.support import Reading, Unsupported

Span = tuple[int, int]
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_SPACES, _REST, _LINE_ENDS = re.compile(" *"), re.compile(r"[^\n]*"), re.compile(r"\n*")


class SupportGate:
    """Takes a text, its citations checked, piece by piece and gives it back without what `reading` finds unsupported.

    However the text is cut into pieces, what is given back is the same. A sentence is held back until its paragraph or list item has
    ended, a table until it has. `part` is the text's name.
    """

    def __init__(self, part: str, reading: Reading) -> None:
        self._part, self._reading = part, reading
        self._held = self._blank = self._last = ""
        self._taken = self._given = 0
        self._waiting: list[Mark] = []
        self._marks: list[Mark] = []
        self._dropped: list[Unsupported] = []

    @property
    def marks(self) -> tuple[Mark, ...]:
        """The citations in what was given back, in order."""
        return tuple(self._marks)

    @property
    def dropped(self) -> list[Unsupported]:
        """The sentences that were left out, each at the place where it stood."""
        return [replace(each, start=at, end=at) for each in self._dropped for at in [min(each.start, self._given)]]

    def feed(self, text: str, marks: Iterable[Mark] = ()) -> str:
        """What can be given back now; `marks` are the citations in `text`, their places those in all of the text so far."""
        self._held += text
        self._waiting += marks
        return self._release(settled(self._held)) if "\n" in text else ""

    def finish(self) -> str:
        """The rest, at the end of the text."""
        return self._release(len(self._held))

    def _release(self, end: int) -> str:
        block, self._held = self._held[:end], self._held[end:]
        found = self._reading.unsupported(self._part, block)
        gone = cuts(block, found, self._last + self._blank)
        start = self._given + len(self._blank)
        self._dropped += [replace(each, start=start + place_without(each.start, gone)) for each in found]
        decided = [mark for mark in self._waiting if mark.start < self._taken + end]
        self._waiting = self._waiting[len(decided) :]
        for mark in decided:
            at = mark.start - self._taken
            if not any(first <= at < last for first, last in gone):
                self._marks.append(mark.later(start + place_without(at, gone) - mark.start))
        self._taken += end
        text = self._blank + without(block, gone)
        given = text.rstrip()
        self._blank = text[len(given) :]
        self._given += len(given)
        self._last = given[-1:] or self._last
        return given


def without_unsupported(checked: str, unsupported: Sequence[Unsupported]) -> tuple[str, tuple[Unsupported, ...]]:
    """The text without these sentences, and these, each at the place where it stood.

    >>> without_unsupported("It burned. It sank. It is gone.", [Unsupported("reason", "It sank.", 11, 19, 0.9, (), ())])[0]
    'It burned. It is gone.'
    """
    gone = cuts(checked, unsupported, "")
    kept = without(checked, gone).rstrip()
    places = [min(place_without(each.start, gone), len(kept)) for each in unsupported]
    moved = [replace(each, start=at, end=at) for each, at in zip(unsupported, places, strict=True)]
    return kept, tuple(moved)


def settled(text: str) -> int:
    """How many characters of a text that goes on are whole paragraphs, headings, list items, and tables with what follows them.

    The empty lines behind each belong to it.
    """
    end, is_closed, in_table = 0, False, False
    for match in _LINE.finditer(text):
        line = match[0]
        if not line.strip():
            is_closed = is_closed or not in_table
            continue
        end = match.start() if is_closed else end
        is_closed, in_table = bool(LIST_ITEM.match(line) or HEADING.match(line)), is_row(line)
    return end


def cuts(text: str, sentences: Sequence[Unsupported], before: str) -> list[Span]:
    """What goes with these sentences, characters first to last, in order; `before` is what stands in front of the text."""
    spans: list[Span] = []
    for each in sentences:
        end = _SPACES.match(text, each.end).end()  # type: ignore[union-attr]
        if spans and spans[-1][1] >= each.start:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((each.start, end))
    gone: list[Span] = []
    for span in spans:
        gone.append(_widened(text, span, before + without(text[: span[0]], gone)))
    return gone


def without(text: str, gone: Sequence[Span]) -> str:
    """The text without these spans."""
    ends = [0, *(last for _, last in gone)]
    starts = [*(first for first, _ in gone), len(text)]
    return "".join(text[end:start] for end, start in zip(ends, starts, strict=True))


def place_without(at: int, gone: Sequence[Span]) -> int:
    """Where the character `at` is once these spans are gone; that where it was, if it is in one."""
    return at - sum(min(last, at) - first for first, last in gone if first < at)


def _widened(text: str, span: Span, ahead: str) -> Span:
    """A span with the rest of its line where nothing else is on it, and without the blanks in front where it ends one; `ahead` is what
    is kept in front of it.
    """
    first, last = span
    line_end = _REST.match(text, last).end()  # type: ignore[union-attr]
    head = ahead[ahead.rfind("\n") + 1 :]
    if text[last:line_end].strip():
        return span
    if head.strip() and not LIST_ITEM.fullmatch(head):
        return max(0, first - (len(head) - len(head.rstrip(" ")))), last
    above = ahead[: len(ahead) - len(head)]
    behind = _LINE_ENDS.match(text, line_end).end()  # type: ignore[union-attr]
    return max(0, first - len(head)), behind if not above or above.endswith("\n\n") else min(line_end + 1, behind)
