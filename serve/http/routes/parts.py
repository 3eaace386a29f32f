"""A model's text as a message has it: the answer is `content`, the reasoning stands beside it, the citations of both are checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from graph.prompt.answer import headed
from graph.prompt.citations import CitationGate, Mark, check_citations
from graph.prompt.form import FormSplitter, Part
from graph.shared.types import Excerpt
from graph.text.prompting import quote
from graph.verify.drop import SupportGate
from graph.verify.support import Handling, Reading, Unsupported
from graph.verify.verifier import Verifier
from serve.views.citations import citation, url_citation

REASONING = "reasoning_content"
THOUGHTS = (REASONING, "reasoning")
"""What engines call the thinking that they took out of a text themselves."""
NO_ANSWER = "The model wrote no answer."
QUOTED_CHARS = 600
"""How much of a passage stands in for an answer."""
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
    """Takes the text of one choice piece by piece. Without `form` all of it is content: a client's own format.

    `handling` says what is done with sentences that the passages do not support; the verifier reads them as they end where they are
    dropped, and else at the end. With `stand_in` a text without an answer gets one at its end: that there is none, and the best passage.
    """

    def __init__(
        self,
        excerpts: Sequence[Excerpt],
        form: bool,
        handling: Handling = "mark",
        verifier: Verifier | None = None,
        stand_in: bool = False,
    ) -> None:
        self._excerpts = excerpts
        self._stand_in = stand_in and form
        self._splitter = FormSplitter() if form else None
        reading = Reading(excerpts, None if handling == "ignore" else verifier)
        self._reasoning, self._content = (
            _Field(name, len(excerpts), reading, handling == "drop") for name in (REASONING, "content")
        )
        self._told = 0

    @property
    def answered(self) -> bool:
        """Whether the model wrote an answer so far; where it did not, another text stands in its place."""
        return self._content.has_words

    @property
    def removed(self) -> tuple[int, ...]:
        """The numbers that the text cited and no passage has, in order of first use."""
        return _union(self._reasoning.gate.removed, self._content.gate.removed)

    def unsupported(self) -> list[dict[str, Any]]:
        """The sentences that the passages do not seem to say, once the text has ended: `part` is the field of the message."""
        return [asdict(sentence) for field in (self._reasoning, self._content) for sentence in field.unsupported()]

    def fields(self, base: str) -> dict[str, Any]:
        """The extra fields of a message: its citations with their places, those of the content as annotations, what was removed, the
        sentences that the passages do not support, and whether the model wrote an answer.
        """
        marks = (*self._reasoning.marks, *self._content.marks)
        return {
            "citations": [
                citation(number, self._excerpts[number - 1]) for number in _union([mark.number for mark in marks])
            ],
            "annotations": [url_citation(mark, self._excerpts[mark.number - 1], base) for mark in self._content.marks],
            "removed": list(self.removed),
            "unsupported": self.unsupported(),
            "answered": self.answered,
        }

    def feed(self, said: Mapping[str, Any]) -> Shown:
        """What can be shown of the text up to the next piece: a message or a delta as the engine gave it."""
        self._stand_in = self._stand_in and not (said.get("tool_calls") or said.get("function_call"))
        thought, text = said_by_engine(said)
        parts = [Part(_BY_ENGINE, "thinking", thought)] if thought else []
        if text:
            parts += self._splitter.feed(text) if self._splitter is not None else [Part(0, "text", text)]
        return self._show(parts)

    def finish(self) -> Shown:
        """The rest, at the end of the text."""
        shown = self._show(self._splitter.finish() if self._splitter is not None else [])
        shown = shown.then(self._marked(self._reasoning.finish(), self._content.finish()))
        if not self._stand_in or self.answered:
            return shown
        self._stand_in = False
        return shown.then(self._marked("", self._content.stand_in(stand_in(self._excerpts))))

    def _show(self, parts: Sequence[Part]) -> Shown:
        reasoning, content = "", ""
        for part in parts:
            if part.is_reasoning:
                content += self._content.finish()
                reasoning += self._reasoning.feed(part)
            else:
                reasoning += self._reasoning.finish()
                content += self._content.feed(part)
        return self._marked(reasoning, content)

    def _marked(self, reasoning: str, content: str) -> Shown:
        """Texts with the citations that are new in the content."""
        marks = self._content.marks[self._told :]
        self._told += len(marks)
        return Shown(reasoning, content, marks)


def stand_in(excerpts: Sequence[Excerpt]) -> str:
    """What is shown in place of an answer that is empty: the beginning of the best passage, which comes first."""
    if not excerpts:
        return NO_ANSWER
    words = quote(check_citations(headed(excerpts[0]), 0).text)
    passage = words if len(words) <= QUOTED_CHARS else f"{words[:QUOTED_CHARS].rpartition(' ')[0]} …"
    return f"{NO_ANSWER} The passage that is nearest to the question: {passage} [1]"


class PlainParts:
    """As MessageParts for a text that was not written from passages: it is shown as it comes."""

    removed: tuple[int, ...] = ()
    answered = True

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
    """One field of a message: the sections that go to it, an empty line between two, through the gates."""

    def __init__(self, name: str, passages: int, reading: Reading, drops: bool) -> None:
        self.gate = CitationGate(passages)
        self._name, self._passages, self._reading = name, passages, reading
        self._support = SupportGate(name, reading) if drops else None
        self._cited = 0
        self._section: int | None = None
        self.has_words = False
        """Whether the model wrote any, beside citations of nothing."""
        self._shown_chars = 0
        self._stand_in_marks: tuple[Mark, ...] = ()

    @property
    def marks(self) -> tuple[Mark, ...]:
        """The citations in what was shown."""
        return self._stand_in_marks or (self.gate.marks if self._support is None else self._support.marks)

    def unsupported(self) -> list[Unsupported]:
        """The sentences that the passages do not seem to say."""
        if self._support is not None:
            return self._support.dropped
        return self._reading.unsupported(self._name, self.gate.shown)

    def feed(self, part: Part) -> str:
        if not part.text:
            return ""
        first = self._section in (None, part.section)
        self._section = part.section
        return self._shown(self._kept(self.gate.feed(part.text if first else _BETWEEN + part.text)))

    def finish(self) -> str:
        rest = self._kept(self.gate.finish())
        return self._shown(rest if self._support is None else rest + self._support.finish())

    def stand_in(self, text: str) -> str:
        """A text behind all that was shown, which is not the model's: no verifier reads it."""
        gate = CitationGate(self._passages)
        checked = gate.feed(text) + gate.finish()
        self._stand_in_marks = tuple(mark.later(self._shown_chars) for mark in gate.marks)
        return self._shown(checked)

    def _shown(self, text: str) -> str:
        self._shown_chars += len(text)
        return text

    def _kept(self, checked: str) -> str:
        self.has_words = self.has_words or bool(checked.strip())
        if self._support is None:
            return checked
        marks = self.gate.marks[self._cited :]
        self._cited += len(marks)
        return self._support.feed(checked, marks)


def _union(*numbers: Sequence[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(number for each in numbers for number in each))
