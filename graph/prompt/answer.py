"""One form of prompt and of answer for the whole suite: training, evaluation and serving all build it here.

Form of the answer (GraphMPA, Appendix L): "###Reason: … ###Answer: …", with citations [n] of the numbered passages; graph/prompt/form.py takes it
apart.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graph.prompt.form import ANSWER, REASON, Kind, split_form
from graph.shared.types import AnswerForm, Excerpt, Message
from graph.text.prompting import quote, read_prompt

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
class Cited:
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


def write_answer(answer: str, evidence: Sequence[Cited], form: AnswerForm) -> str:
    """An answer in a form, citing the passages of its evidence; "not in the documents" cites none and has no reason.

    >>> write_answer("Tarn", [Cited(2, "The ferry left Tarn.")], "cited")
    'Tarn [2]'
    >>> write_answer("Tarn", [Cited(2, "The ferry left Tarn.")], "quoted")
    '###Answer: Tarn ###Reason: The ferry left Tarn. [2]'
    """
    if form == "cited" or answer == NOT_FOUND:
        return " ".join([answer, "".join(f"[{one.number}]" for one in evidence)]).strip()
    reason = " ".join(f"{one.sentence} [{one.number}]" for one in evidence)
    return format_answer(reason, answer) if form == "reasoned" else f"{ANSWER} {answer} {REASON} {reason}"


def numbered(number: int, excerpt: Excerpt) -> str:
    """An excerpt as a prompt shows it: one line, its number in brackets."""
    return f"[{number}] {quote(headed(excerpt))}"


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


def headed(excerpt: Excerpt) -> str:
    """The excerpt's text after its title, unless it opens with it."""
    title = excerpt.title.strip()
    return excerpt.text if not title or excerpt.text.lstrip("# ").startswith(title) else f"{title}: {excerpt.text}"
