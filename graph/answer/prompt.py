"""The prompt and the answer forms of the whole project: training, evaluation and serving all build and parse them with this module.

The form "reasoned" (GraphMPA, Appendix L) is "###Reason: … ###Answer: …", with citations [n] of the numbered passages; "quoted" has the answer
first, "cited" is one line without markers. `FormSplitter` parses an answer while it streams; a thinking block of the model may come first.
Parsing takes linear time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from graph.text.prompting import quote, read_prompt
from graph.text.replies import END_OF_THINKING, THINK
from graph.text.sentences import spell_out_rows
from graph.text.word_forms import SENTENCE_ENDS, unspaced_runs
from graph.types import AnswerForm, Excerpt, Message

REASON, ANSWER = "###Reason:", "###Answer:"
Kind = Literal["lead", "thinking", "reason", "text", "answer", "rest"]
"""In text order: leading white space and markers; a thinking block; the reason; text before the first marker or without any; the answer; the text after it."""

_NEXT: Mapping[Kind, Mapping[str, Kind]] = {
    "lead": {THINK: "thinking", END_OF_THINKING: "lead", REASON: "reason", ANSWER: "answer"},
    "thinking": {END_OF_THINKING: "lead"},
    "reason": {REASON: "reason", ANSWER: "answer"},
    "text": {REASON: "reason", ANSWER: "answer"},
    "answer": {REASON: "rest", ANSWER: "rest"},
    "rest": {REASON: "rest", ANSWER: "rest"},
}
"""The markers that end a section, and the section that each begins. In the lead, a marker counts only at the start; an empty answer ends as a reason does."""
_MARKER = {kind: re.compile("|".join(map(re.escape, markers))) for kind, markers in _NEXT.items()}
_PREFIXES = {
    kind: [marker[:n] for marker in markers for n in range(len(marker) - 1, 0, -1)] for kind, markers in _NEXT.items()
}
ANSWER_TOKENS: Mapping[AnswerForm, int] = {"cited": 64, "quoted": 256, "reasoned": 256}
"""The token limit of an answer in each form, unless the user sets one."""
_MIN_PREFIX_CHARS = 3
"""At the end of a text, the beginning of a marker is dropped if it has at least this many characters, except in a section `text`; otherwise it is text."""


@dataclass(frozen=True)
class Part:
    """A piece of a section's text, empty where a marker starts the section; sections are numbered in text order."""

    section: int
    kind: Kind
    text: str

    @property
    def is_reasoning(self) -> bool:
        """Whether the part accompanies the answer rather than belonging to it."""
        return self.kind in ("thinking", "reason", "rest")


class FormSplitter:
    """Splits a streamed text into sections, without markers and outer white space.

    The joined parts of each section do not depend on how the text is split into pieces. A text without markers is one
    section, unchanged. Only white space and possible markers wait for the next piece.
    """

    def __init__(self) -> None:
        self._kind: Kind = "lead"
        self._section = 0
        self._keeps_spaces = True
        """Whether white space belongs to the section: after its first word, or anywhere in a text without markers."""
        self._spaces: list[str] = []
        self._pending = ""
        self._parts: list[Part] = []

    def feed(self, piece: str) -> list[Part]:
        """The new parts that `piece` completes."""
        text, self._pending = self._pending + piece, ""
        at = 0
        while at < len(text):
            at = self._read_lead(text, at) if self._kind == "lead" else self._read_body(text, at)
        return self._take()

    def finish(self) -> list[Part]:
        """The remaining parts, at the end of the text."""
        if self._kind == "text" or len(self._pending) < _MIN_PREFIX_CHARS:
            self._append_text(self._pending)
            if self._kind in ("lead", "text") and self._keeps_spaces:
                self._append_part("text", "".join(self._spaces))
        self._pending, self._spaces = "", []
        return self._take()

    def _read_lead(self, text: str, at: int) -> int:
        """Read white space from `at` on and the marker after it, if any; return the offset to continue from."""
        start = at
        while start < len(text) and text[start].isspace():
            start += 1
        self._spaces.append(text[at:start])
        if marker := _MARKER["lead"].match(text, start):
            return self._start_section(marker)
        if text[start:] in _PREFIXES["lead"]:
            self._pending = text[start:]
            return len(text)
        self._kind = "text" if start < len(text) else "lead"
        return start

    def _read_body(self, text: str, at: int) -> int:
        """Read a section from `at` to its end, or to a possible marker at the end of `text`; return the offset to continue from."""
        if marker := _MARKER[self._kind].search(text, at):
            self._append_text(text[at : marker.start()])
            return self._start_section(marker)
        self._pending = next((prefix for prefix in _PREFIXES[self._kind] if text.endswith(prefix, at)), "")
        self._append_text(text[at : len(text) - len(self._pending)])
        return len(text)

    def _start_section(self, marker: re.Match[str]) -> int:
        is_empty_answer = self._kind == "answer" and not self._keeps_spaces
        self._kind = _NEXT["reason" if is_empty_answer else self._kind][marker[0]]
        self._section, self._keeps_spaces, self._spaces = self._section + 1, False, []
        if self._kind != "lead":
            self._parts.append(Part(self._section, self._kind, ""))
        return marker.end()

    def _append_text(self, text: str) -> None:
        """Append `text` to this section; trailing white space waits for the next word."""
        words = text.rstrip()
        if words:
            before = "".join(self._spaces)
            self._append_part(
                "text" if self._kind == "lead" else self._kind, before + words if self._keeps_spaces else words.lstrip()
            )
            self._keeps_spaces, self._spaces = True, []
        self._spaces.append(text[len(words) :])

    def _append_part(self, kind: Kind, text: str) -> None:
        if text:
            self._parts.append(Part(self._section, kind, text))

    def _take(self) -> list[Part]:
        parts, self._parts = self._parts, []
        return parts


def split_form(text: str) -> list[Part]:
    """The sections of a complete text in order, empty ones included."""
    splitter = FormSplitter()
    sections: dict[int, Part] = {}
    for part in [*splitter.feed(text), *splitter.finish()]:
        before = sections[part.section].text if part.section in sections else ""
        sections[part.section] = Part(part.section, part.kind, before + part.text)
    return list(sections.values())


PROMPTS: Mapping[AnswerForm, str] = {
    "cited": "graph/answer_cited.txt",
    "quoted": "graph/answer_quoted.txt",
    "reasoned": "graph/answer.txt",
}
NOT_FOUND = "not in the documents"
_CITES = re.compile(r"\[\d+\]\s*\Z")
_NO_ANSWERS = frozenset({"", NOT_FOUND, "not found", "unknown", "n/a", "i don't know"})


@dataclass(frozen=True)
class ParsedAnswer:
    """A parsed answer; in a text without markers, `answer` is the whole text. A thinking block is in neither field."""

    reason: str
    answer: str
    well_formed: bool


@dataclass(frozen=True)
class CitedSentence:
    """A sentence of passage `number` that supports an answer."""

    number: int
    sentence: str


def answer_messages(question: str, excerpts: Sequence[Excerpt], form: AnswerForm = "reasoned") -> tuple[Message, ...]:
    """The chat that asks `question` about excerpts (numbered from 1), for an answer in `form`; without excerpts, the user turn is only the question."""
    quoted = [numbered_excerpt(number, excerpt) for number, excerpt in enumerate(excerpts, start=1)]
    passages = "Passages:\n" + "\n".join(quoted) + "\n\n" if quoted else ""
    user = f"{passages}Question: {quote(question)}"
    return Message("system", read_prompt(PROMPTS[form])), Message("user", user)


def form_of(instructions: str) -> AnswerForm | None:
    """The form that a system message requests; None for an unknown message."""
    return next((form for form in PROMPTS if instructions.startswith(read_prompt(PROMPTS[form]))), None)


def form_of_prompt(prompt: Sequence[Message]) -> AnswerForm:
    """The form that a prompt's first message requests; "reasoned" for an unknown message."""
    return (form_of(prompt[0].content) if prompt else None) or "reasoned"


def write_answer(answer: str, evidence: Sequence[CitedSentence], form: AnswerForm) -> str:
    """An answer in a form, citing the passages of its evidence; "not in the documents", whose evidence is empty, has no reason.

    >>> write_answer("Tarn", [CitedSentence(2, "The ferry left Tarn.")], "cited")
    'Tarn [2]'
    >>> write_answer("Tarn", [CitedSentence(2, "The ferry left Tarn.")], "quoted")
    '###Answer: Tarn ###Reason: The ferry left Tarn. [2]'
    """
    if form == "cited" or answer == NOT_FOUND:
        return " ".join([answer, "".join(f"[{item.number}]" for item in evidence)]).strip()
    reason = " ".join(f"{item.sentence} [{item.number}]" for item in evidence)
    return format_answer(reason, answer) if form == "reasoned" else f"{ANSWER} {answer} {REASON} {reason}"


def numbered_excerpt(number: int, excerpt: Excerpt) -> str:
    """An excerpt as a prompt shows it: one line, its number in brackets, table rows as "header: value" pairs."""
    plain = replace(excerpt, text=spell_out_rows(excerpt.text, excerpt.header))
    return f"[{number}] {quote(with_title(plain))}"


def is_no_answer(text: str) -> bool:
    """Whether a one-line reply is empty, or one of the usual ways to say that there is no answer.

    >>> is_no_answer("Not in the documents."), is_no_answer("I don’t know…"), is_no_answer("Unknown Pleasures")
    (True, True, False)
    """
    return text.casefold().replace("’", "'").strip(f" .!…{SENTENCE_ENDS}") in _NO_ANSWERS


def format_answer(reason: str, answer: str) -> str:
    """An answer in the form "reasoned": reasoning, then the answer."""
    return f"{REASON} {reason.strip()} {ANSWER} {answer.strip()}"


def parse_answer(text: str, form: AnswerForm = "reasoned") -> ParsedAnswer:
    """Parse "###Reason: … ###Answer: …", ignoring a thinking block before it.

    The answer is the first answer section that is not empty, else the text before the first marker; the reason is all other text. (Answers as users
    see them begin with that text, because a stream shows it before the marker arrives: serve/pipeline.py.)
    Well formed means one of each marker, text after each, and an answer of one line. In the form "quoted", the parts are in reverse order;
    in "cited", one line that ends with a citation is well formed. In both, one line that states that there is no answer is also well formed.
    """
    parts = [part for part in split_form(text) if part.kind != "thinking"]
    answers = [part for kind in ("answer", "text") for part in parts if part.kind == kind and part.text]
    answer = answers[0].text.strip() if answers else ""
    reason = "\n\n".join(part.text for part in parts if part.text and part not in answers[:1])
    kinds = [part.kind for part in parts]
    bare = kinds == ["text"] and form != "reasoned" and is_no_answer(answer)
    if form == "cited":
        in_form = bare or (kinds == ["text"] and _CITES.search(answer) is not None)
    else:
        order = ["answer", "rest"] if form == "quoted" else ["reason", "answer"]
        in_form = bare or (kinds == order and bool(reason))
    return ParsedAnswer(reason, answer, in_form and bool(answer) and "\n" not in answer)


def with_title(excerpt: Excerpt) -> str:
    """The excerpt's text, preceded by its title unless the text starts with the title."""
    title, beginning = excerpt.title.strip(), excerpt.text.lstrip("# ")
    following = beginning[len(title) : len(title) + 1]
    is_inside_word = following.isalnum() and not unspaced_runs(following)
    repeats = beginning.startswith(title) and not is_inside_word
    return excerpt.text if not title or repeats else f"{title}: {excerpt.text}"
