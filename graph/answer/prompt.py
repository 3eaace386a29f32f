"""The prompt and the form of an answer for the whole suite: training, evaluation and serving all build and parse it here.

Form of the answer (GraphMPA, Appendix L): "###Reason: … ###Answer: …", with citations [n] of the numbered passages. `FormSplitter` takes it
apart while it is still being written; a thinking block of the model itself may come first. The time is linear in the text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from graph.text.prompting import quote, read_prompt
from graph.text.replies import END_OF_THINKING, THINK
from graph.types import AnswerForm, Excerpt, Message

REASON, ANSWER = "###Reason:", "###Answer:"
Kind = Literal["lead", "thinking", "reason", "text", "answer", "rest"]
"""Before anything; a thinking block; the form's two parts; text before or without the form; what comes after the answer."""

_NEXT: Mapping[Kind, Mapping[str, Kind]] = {
    "lead": {THINK: "thinking", END_OF_THINKING: "lead", REASON: "reason", ANSWER: "answer"},
    "thinking": {END_OF_THINKING: "lead"},
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


PROMPTS: Mapping[AnswerForm, str] = {
    "cited": "graph/answer_cited.txt",
    "quoted": "graph/answer_quoted.txt",
    "reasoned": "graph/answer.txt",
}
REASON_IS: Mapping[AnswerForm, Kind] = {"cited": "reason", "quoted": "rest", "reasoned": "reason"}
"""Which section of a reply holds its reason."""
NOT_FOUND = "not in the documents"
_CITES = re.compile(r"\[\d+\]\s*\Z")
_NO_ANSWERS = frozenset({"", NOT_FOUND, "not found", "unknown", "n/a", "i don't know"})


@dataclass(frozen=True)
class ParsedAnswer:
    """An answer taken apart; without the form `answer` is the whole text. What the model thought before it is in neither."""

    reason: str
    answer: str
    well_formed: bool


@dataclass(frozen=True)
class CitedSentence:
    """A sentence of passage `number` that an answer rests on."""

    number: int
    sentence: str


def answer_messages(question: str, excerpts: Sequence[Excerpt], form: AnswerForm = "reasoned") -> tuple[Message, ...]:
    """The chat that asks `question` over numbered excerpts (1-based) for an answer of a form; with none, the question stands alone."""
    quoted = [numbered(number, excerpt) for number, excerpt in enumerate(excerpts, start=1)]
    passages = "Passages:\n" + "\n".join(quoted) + "\n\n" if quoted else ""
    user = f"{passages}Question: {quote(question)}"
    return Message("system", read_prompt(PROMPTS[form])), Message("user", user)


def form_of(instructions: str) -> AnswerForm | None:
    """The form that a system message asks for; None where it is none of ours."""
    return next((form for form in PROMPTS if instructions.startswith(read_prompt(PROMPTS[form]))), None)


def form_of_prompt(prompt: Sequence[Message]) -> AnswerForm:
    """The form that a prompt's first message asks for; "reasoned" where it is none of ours."""
    return (form_of(prompt[0].content) if prompt else None) or "reasoned"


def write_answer(answer: str, evidence: Sequence[CitedSentence], form: AnswerForm) -> str:
    """An answer in a form, citing the passages of its evidence; "not in the documents" cites none and has no reason.

    >>> write_answer("Tarn", [CitedSentence(2, "The ferry left Tarn.")], "cited")
    'Tarn [2]'
    >>> write_answer("Tarn", [CitedSentence(2, "The ferry left Tarn.")], "quoted")
    '###Answer: Tarn ###Reason: The ferry left Tarn. [2]'
    """
    if form == "cited" or answer == NOT_FOUND:
        return " ".join([answer, "".join(f"[{one.number}]" for one in evidence)]).strip()
    reason = " ".join(f"{one.sentence} [{one.number}]" for one in evidence)
    return format_answer(reason, answer) if form == "reasoned" else f"{ANSWER} {answer} {REASON} {reason}"


def numbered(number: int, excerpt: Excerpt) -> str:
    """An excerpt as a prompt shows it: one line, its number in brackets."""
    return f"[{number}] {quote(with_title(excerpt))}"


def is_no_answer(text: str) -> bool:
    """Whether a reply, as one line, says that there is no answer, whatever words the prompt asked for.

    >>> is_no_answer("Not in the documents."), is_no_answer("Unknown Pleasures")
    (True, False)
    """
    return text.casefold().strip(" .") in _NO_ANSWERS


def format_answer(reason: str, answer: str) -> str:
    """The chosen form: reasoning, then the answer."""
    return f"{REASON} {reason.strip()} {ANSWER} {answer.strip()}"


def parse_answer(text: str, form: AnswerForm = "reasoned") -> ParsedAnswer:
    """Take "###Reason: … ###Answer: …" apart, as the server shows it to clients, a thinking block before it left out.

    One of each marker, with a text behind each and an answer of one line, counts as well formed. Of a text that is cut before its
    answer, the answer is empty; of one with several, it is the first. In the form "cited", one line that cites, or says that there is no
    answer, is well formed; in "quoted" the parts come the other way round.
    """
    parts = [part for part in split_form(text) if part.kind != "thinking"]
    reason = "\n\n".join(part.text for part in parts if part.kind == REASON_IS[form] and part.text)
    answers = [part.text for kind in ("answer", "text") for part in parts if part.kind == kind]
    answer = answers[0].strip() if answers else ""
    kinds = [part.kind for part in parts]
    bare = kinds == ["text"] and form != "reasoned" and is_no_answer(answer)
    if form == "cited":
        in_form = bare or (kinds == ["text"] and _CITES.search(answer) is not None)
    else:
        order = ["answer", "rest"] if form == "quoted" else ["reason", "answer"]
        in_form = bare or (kinds == order and bool(reason))
    return ParsedAnswer(reason, answer, in_form and bool(answer) and "\n" not in answer)


def with_title(excerpt: Excerpt) -> str:
    """The excerpt's text after its title, unless it opens with it."""
    title = excerpt.title.strip()
    return excerpt.text if not title or excerpt.text.lstrip("# ").startswith(title) else f"{title}: {excerpt.text}"
