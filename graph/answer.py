"""One form of prompt and of answer for the whole suite: training, evaluation and serving all build it here.

Form of the answer (GraphMPA, Appendix L): "###Reason: … ###Answer: …", with citations [n] of the numbered passages.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from graph.prompting import quote, read_prompt
from graph.types import Excerpt, Message

REASON, ANSWER = "###Reason:", "###Answer:"
NOT_FOUND = "not in the documents"
_NO_ANSWERS = frozenset({"", NOT_FOUND, "not found", "unknown", "n/a", "i don't know"})
_FORM = re.compile(rf"^\s*{REASON}\s*(?P<reason>\S.*?)\s*{ANSWER}\s*(?P<answer>\S[^\n]*?)\s*$", re.DOTALL)
_CITATION = re.compile(r"[^\S\n]?\[(\d{1,4})\]")


@dataclass(frozen=True)
class ParsedAnswer:
    """An answer taken apart; without the form, `reason` is empty and `answer` is the whole text."""

    reason: str
    answer: str
    well_formed: bool


@dataclass(frozen=True)
class CheckedText:
    """A text whose citations all exist: `cited` in order of first use, `removed` are numbers that had no passage."""

    text: str
    cited: tuple[int, ...]
    removed: tuple[int, ...]


def answer_messages(question: str, excerpts: Sequence[Excerpt]) -> tuple[Message, ...]:
    """The chat that asks `question` over numbered excerpts (1-based); with none, the question stands alone."""
    quoted = [numbered(number, excerpt) for number, excerpt in enumerate(excerpts, start=1)]
    passages = "Passages:\n" + "\n".join(quoted) + "\n\n" if quoted else ""
    user = f"{passages}Question: {quote(question)}"
    return Message("system", read_prompt("graph/answer.txt")), Message("user", user)


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


def parse_answer(text: str) -> ParsedAnswer:
    """Take "###Reason: … ###Answer: …" apart; exactly one of each marker, both non-empty, counts as well formed."""
    match = _FORM.match(text)
    if match is None or text.count(REASON) != 1 or text.count(ANSWER) != 1:
        tail = text.rpartition(ANSWER)[2] if ANSWER in text else text
        return ParsedAnswer("", tail.strip(), well_formed=False)
    return ParsedAnswer(match["reason"], match["answer"], well_formed=True)


def check_citations(text: str, passages: int) -> CheckedText:
    """Remove every citation [n] with n outside 1…passages, and report both kinds."""
    numbers = [int(number) for number in _CITATION.findall(text)]
    cited = tuple(dict.fromkeys(n for n in numbers if 1 <= n <= passages))
    removed = tuple(dict.fromkeys(n for n in numbers if not 1 <= n <= passages))
    clean = _CITATION.sub(lambda match: match[0] if 1 <= int(match[1]) <= passages else "", text)
    return CheckedText(clean, cited, removed)


def headed(excerpt: Excerpt) -> str:
    """The excerpt's text after its title, unless it opens with it."""
    title = excerpt.title.strip()
    return excerpt.text if not title or excerpt.text.lstrip("# ").startswith(title) else f"{title}: {excerpt.text}"
