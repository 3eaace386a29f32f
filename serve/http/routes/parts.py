"""A model's text as a message has it: the answer is `content`, the reasoning stands beside it, the citations of both are checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from graph.prompt.citations import CitationGate, Mark
from graph.prompt.form import FormSplitter, Part
from graph.shared.types import Excerpt
from graph.verify.support import unsupported_sentences
from graph.verify.verifier import Verifier
from serve.views.citations import citation, url_citation

REASONING = "reasoning_content"
THOUGHTS = (REASONING, "reasoning")
"""What engines call the thinking that they took out of a text themselves."""
_BETWEEN = "\n\n"
_BY_ENGINE = -1


class Shown(NamedTuple):
    """What can be shown now; `marks` are the citations in `content`, their places those in the whole of it."""

    reasoning: str
    content: str
    marks: tuple[Mark, ...] = ()

    def then(self, later: Shown) -> Shown:
        """Both, one behind the other."""
        return Shown(self.reasoning + later.reasoning, self.content + later.content, self.marks + later.marks)


class MessageParts:
    """Takes the text of one choice piece by piece. Without `form` all of it is content: a client's own format."""

    def __init__(self, excerpts: Sequence[Excerpt], form: bool, verifier: Verifier | None = None) -> None:
        self._excerpts, self._verifier = excerpts, verifier
        self._splitter = FormSplitter() if form else None
        self._reasoning, self._content = _Field(len(excerpts)), _Field(len(excerpts))
        self._told = 0

    @property
    def removed(self) -> tuple[int, ...]:
        """The numbers that the text cited and no passage has, in order of first use."""
        return _union(self._reasoning.gate.removed, self._content.gate.removed)

    def unsupported(self) -> list[dict[str, Any]]:
        """The sentences that the passages do not seem to say, once the text has ended: `part` is the field of the message."""
        texts = {REASONING: self._reasoning.gate.shown, "content": self._content.gate.shown}
        return [
            asdict(sentence)
            for part, text in texts.items()
            for sentence in unsupported_sentences(part, text, self._excerpts, self._verifier)
        ]

    def fields(self, base: str) -> dict[str, Any]:
        """The extra fields of a message: its citations with their places, those of the content as annotations, what was removed, and
        the sentences that the passages do not support.
        """
        cited = _union(self._reasoning.gate.cited, self._content.gate.cited)
        return {
            "citations": [citation(number, self._excerpts[number - 1]) for number in cited],
            "annotations": [
                url_citation(mark, self._excerpts[mark.number - 1], base) for mark in self._content.gate.marks
            ],
            "removed": list(self.removed),
            "unsupported": self.unsupported(),
        }

    def feed(self, said: Mapping[str, Any]) -> Shown:
        """What can be shown of the text up to the next piece: a message or a delta as the engine gave it."""
        thought, text = said_by_engine(said)
        parts = [Part(_BY_ENGINE, "thinking", thought)] if thought else []
        if text:
            parts += self._splitter.feed(text) if self._splitter is not None else [Part(0, "text", text)]
        return self._show(parts)

    def finish(self) -> Shown:
        """The rest, at the end of the text."""
        shown = self._show(self._splitter.finish() if self._splitter is not None else [])
        return shown.then(self._marked(self._reasoning.gate.finish(), self._content.gate.finish()))

    def _show(self, parts: Sequence[Part]) -> Shown:
        reasoning, content = "", ""
        for part in parts:
            if part.is_reasoning:
                content += self._content.gate.finish()
                reasoning += self._reasoning.feed(part)
            else:
                reasoning += self._reasoning.gate.finish()
                content += self._content.feed(part)
        return self._marked(reasoning, content)

    def _marked(self, reasoning: str, content: str) -> Shown:
        """Texts with the citations that are new in the content."""
        marks = self._content.gate.marks[self._told :]
        self._told += len(marks)
        return Shown(reasoning, content, marks)


class PlainParts:
    """As MessageParts for a text that was not written from passages: it is shown as it comes."""

    removed: tuple[int, ...] = ()

    def unsupported(self) -> list[dict[str, Any]]:
        """There is nothing to hold it to."""
        return []

    def feed(self, said: Mapping[str, Any]) -> Shown:
        """The next piece."""
        return Shown(*said_by_engine(said))

    def finish(self) -> Shown:
        """Nothing was held back."""
        return Shown("", "")


def said_by_engine(said: Mapping[str, Any]) -> tuple[str, str]:
    """The thinking that an engine took out itself, and the text, of a message or a delta."""
    thought = next((said[name] for name in THOUGHTS if said.get(name)), "")
    return thought, said.get("content") or ""


def takes_form(body: Mapping[str, Any]) -> bool:
    """Whether a request leaves the form of the answer to us: it asks for no format of its own."""
    wanted = body.get("response_format") or {}
    return wanted.get("type", "text") == "text" and not body.get("structured_outputs")


class _Field:
    """One field of a message: the sections that go to it, an empty line between two, through one gate."""

    def __init__(self, passages: int) -> None:
        self.gate = CitationGate(passages)
        self._section: int | None = None

    def feed(self, part: Part) -> str:
        if not part.text:
            return ""
        first = self._section in (None, part.section)
        self._section = part.section
        return self.gate.feed(part.text if first else _BETWEEN + part.text)


def _union(*numbers: Sequence[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(number for each in numbers for number in each))
