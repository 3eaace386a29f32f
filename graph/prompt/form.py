"""The form of an answer, "###Reason: … ###Answer: …", taken apart while it is still being written.

The markers stay between us and the model: what is reasoning and what is the answer is told by where a text stands. A thinking
block of the model itself (<think>…</think>) may come first. The time is linear in the text, whatever its pieces.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from graph.text.thinking import THINK, THOUGHT

REASON, ANSWER = "###Reason:", "###Answer:"
Kind = Literal["lead", "thinking", "reason", "text", "answer", "rest"]
"""Before anything; a thinking block; the form's two parts; text before or without the form; what comes after the answer."""

_NEXT: Mapping[Kind, Mapping[str, Kind]] = {
    "lead": {THINK: "thinking", THOUGHT: "lead", REASON: "reason", ANSWER: "answer"},
    "thinking": {THOUGHT: "lead"},
    "reason": {REASON: "reason", ANSWER: "answer"},
    "text": {REASON: "reason", ANSWER: "answer"},
    "answer": {REASON: "rest", ANSWER: "rest"},
    "rest": {REASON: "rest", ANSWER: "rest"},
}
"""Which markers end a section, and what begins behind each. Of the lead they count only where it begins."""
_MARKER = {kind: re.compile("|".join(map(re.escape, markers))) for kind, markers in _NEXT.items()}
_BEGUN = {kind: [each[:n] for each in markers for n in range(len(each) - 1, 0, -1)] for kind, markers in _NEXT.items()}
_BEGUN_CHARS = 3
"""So much of a marker at the end of a text is a marker that was cut; less is text."""


@dataclass(frozen=True)
class Part:
    """Some text of a section, at its beginning none; sections are numbered in the order of the text."""

    section: int
    kind: Kind
    text: str

    @property
    def is_reasoning(self) -> bool:
        """Whether it goes beside the answer, not into it."""
        return self.kind in ("thinking", "reason", "rest")


class FormSplitter:
    """Takes a text piece by piece and gives its sections, without markers and outer white space.

    However the text is cut into pieces, the parts of each section join to the same. A text without markers is one section as it
    stands. Only white space, and what may become a marker, is held back.
    """

    def __init__(self) -> None:
        self._kind: Kind = "lead"
        self._section = 0
        self._begun = True
        """Whether white space belongs to the section: not before its first word, but in a text without markers everywhere."""
        self._spaces: list[str] = []
        self._held = ""
        self._parts: list[Part] = []

    def feed(self, piece: str) -> list[Part]:
        """What is certain of the text up to `piece` and was not given yet."""
        text, self._held = self._held + piece, ""
        at = 0
        while at < len(text):
            at = self._lead(text, at) if self._kind == "lead" else self._body(text, at)
        return self._take()

    def finish(self) -> list[Part]:
        """The rest, at the end of the text."""
        if self._kind == "text" or len(self._held) < _BEGUN_CHARS:
            self._say(self._held)
            if self._kind in ("lead", "text") and self._begun:
                self._part("text", "".join(self._spaces))
        self._held, self._spaces = "", []
        return self._take()

    def _lead(self, text: str, at: int) -> int:
        """Read white space from `at` on, and the marker behind it if there is one; where to read on."""
        start = at
        while start < len(text) and text[start].isspace():
            start += 1
        self._spaces.append(text[at:start])
        if marker := _MARKER["lead"].match(text, start):
            return self._turn(marker)
        if text[start:] in _BEGUN["lead"]:
            self._held = text[start:]
            return len(text)
        self._kind = "text" if start < len(text) else "lead"
        return start

    def _body(self, text: str, at: int) -> int:
        """Read a section from `at` to its end, or as far as it is certain; where to read on."""
        if marker := _MARKER[self._kind].search(text, at):
            self._say(text[at : marker.start()])
            return self._turn(marker)
        self._held = next((each for each in _BEGUN[self._kind] if text.endswith(each, at)), "")
        self._say(text[at : len(text) - len(self._held)])
        return len(text)

    def _turn(self, marker: re.Match[str]) -> int:
        self._kind = _NEXT[self._kind][marker[0]]
        self._section, self._begun, self._spaces = self._section + 1, False, []
        if self._kind != "lead":
            self._parts.append(Part(self._section, self._kind, ""))
        return marker.end()

    def _say(self, text: str) -> None:
        """`text` belongs to this section; white space at its end waits for what follows."""
        words = text.rstrip()
        if words:
            before = "".join(self._spaces)
            self._part(
                "text" if self._kind == "lead" else self._kind, before + words if self._begun else words.lstrip()
            )
            self._begun, self._spaces = True, []
        self._spaces.append(text[len(words) :])

    def _part(self, kind: Kind, text: str) -> None:
        if text:
            self._parts.append(Part(self._section, kind, text))

    def _take(self) -> list[Part]:
        taken, self._parts = self._parts, []
        return taken


def split_form(text: str) -> list[Part]:
    """The sections of a whole text in order, those without a word too."""
    splitter = FormSplitter()
    found: dict[int, Part] = {}
    for part in [*splitter.feed(text), *splitter.finish()]:
        before = found[part.section].text if part.section in found else ""
        found[part.section] = Part(part.section, part.kind, before + part.text)
    return list(found.values())
