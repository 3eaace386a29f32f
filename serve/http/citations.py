"""Citations of a text that is still being written: what is shown never cites a passage that is not there.

The rule is graph/answer.check_citations; here other ways of writing a citation are first brought into its form, so that "[1, 9]",
"［9］" and "[1](http://…)" cannot pass for citations that were checked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from graph.answer import check_citations, parse_answer
from graph.types import Excerpt

_OPEN, _CLOSE = r"[\[［【]", r"[\]］】]"
_SPACE = r"[^\S\n]"
"""White space but a line's end, which is shown at once: a text may begin with one."""
_WRITTEN = re.compile(rf"({_SPACE}?){_OPEN}\s*(\d+(?:[\s,;、，]+\d+)*)\s*{_CLOSE}")
_CITATION = re.compile(r"\[(\d{1,4})\]")
_UNDECIDED = re.compile(rf"{_SPACE}?(?:{_OPEN}[\d\s,;、，]*|(?:{_OPEN}[\d\s,;、，]*{_CLOSE})+)?\Z")
"""The end of a text that the next piece could make a citation, or a link of one; a space before it goes with a removed one."""
_INSIDE = re.compile(rf".*{_OPEN}[\d\s,;、，]*", re.DOTALL)
TAIL_CHARS = 4096
_MANY_DIGITS = "9999"
"""Stands for a number of more digits than any context has passages."""


class CitationGate:
    """Takes a text piece by piece and gives it back with every citation checked against `passages` numbered ones."""

    def __init__(self, passages: int) -> None:
        self._passages = passages
        self._held = ""
        self._shown = ""
        self._removed: list[int] = []

    @property
    def cited(self) -> tuple[int, ...]:
        """The numbers that the text so far cites, in order of first use."""
        return tuple(dict.fromkeys(int(number) for number in _CITATION.findall(self._shown)))

    @property
    def removed(self) -> tuple[int, ...]:
        """The numbers that it cited and no passage has."""
        return tuple(dict.fromkeys(self._removed))

    @property
    def shown(self) -> str:
        """All that was given back."""
        return self._shown

    def feed(self, piece: str) -> str:
        """What of the text up to `piece` can be shown now; an open bracket waits until it is known what it is."""
        text = self._held + piece
        undecided = _UNDECIDED.search(text)
        end = undecided.start() if undecided is not None else len(text)
        self._held = text[end:]
        return self._show(text[:end])

    def finish(self) -> str:
        """The rest, at the end of the text."""
        text, self._held = self._held, ""
        return self._show(text)

    def _show(self, text: str) -> str:
        made = ""
        at = 0
        for match in _WRITTEN.finditer(text):
            made += text[at : match.start()]
            at = match.end()
            made = self._cite(made, match, text[at : at + 1])
        made += text[at:]
        self._shown += made
        return made

    def _cite(self, before: str, match: re.Match[str], following: str) -> str:
        """`before` with a citation after it, if it holds: [n] for each number that has a passage."""
        plain = "".join(f"[{_in_digits(number)}]" for number in re.findall(r"\d+", match[2]))
        checked = check_citations(plain, self._passages)
        self._removed += checked.removed
        made = before + match[1] + checked.text if checked.text else before
        tail = (self._shown + made)[-TAIL_CHARS:]
        if not checked.text and _INSIDE.fullmatch(tail):
            # What stood around a removed citation must not close up to one: "[[9]7]".
            return made + "…"
        # A space keeps "[1](http://…)" and "[1]: http://…" from becoming a link that looks like a citation.
        return made + (" " if following in ("(", ":") and following and tail.endswith("]") else "")


def _in_digits(number: str) -> str:
    short = str(int(number[-5:])) if len(number) <= 5 else number.lstrip("0")
    return short if len(short) <= 4 else _MANY_DIGITS


def cited_fields(gate: CitationGate, excerpts: Sequence[Excerpt]) -> dict[str, Any]:
    """The extra fields of a message: the citations with their places, what was removed, and the text taken apart."""
    parsed = parse_answer(gate.shown)
    return {
        "citations": [citation(number, excerpts[number - 1]) for number in gate.cited],
        "removed": list(gate.removed),
        "answer": parsed.answer,
        "reason": parsed.reason,
    }


def citation(number: int, excerpt: Excerpt) -> dict[str, Any]:
    """An excerpt as a client reads it: its number, title, source, start, end and text; of a summary its members."""
    return {"number": number, **asdict(excerpt)}
