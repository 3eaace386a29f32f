"""Questions that a collection answers, for readers who do not know it yet: templates over statements near the beginning of documents.

By rules and for English only. Each question comes from one proposition that answers it, names its subject, and does not ask about a name
that two documents share; other statements yield no question, so a collection may have none.
Legend: U documents, P passages.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from graph.extract.entities import MONTHS, may_be_person
from graph.index.index import Index
from graph.retrieve.parts.ranking import expand_rows
from graph.shared.ids import content_id
from graph.store.data import IndexData
from graph.text.sentences import split_units

MOST_DOCUMENTS = 300
"""Documents that are read, evenly spread: enough for a few questions, whatever the size of the collection."""
PASSAGES_READ = 2
"""Passages that are read from each document: later ones rely on the text before them."""
MAX_QUESTION_CHARS = 90

_BRACKETS = re.compile(r"\s*\([^()]*\)")
_PLAIN_NAME = re.compile(r"[^\W_][\w .,'’&-]*")
_DATE = rf"(?:\d{{1,2}} (?:{MONTHS})(?: \d{{4}})?|(?:{MONTHS}) \d{{1,2}}, \d{{4}}|(?:{MONTHS}) \d{{4}}|[12]\d{{3}})(?![\w–-])"
_WITHIN = r"(?:(?! and | but | or |[.,;:]).){0,60}?"
"""A few more words of the same clause."""
_CREATION_VERBS = "built founded designed written painted discovered described made invented composed established drawn cast developed created"
_PAST_TENSES = {"written": "wrote", "drawn": "drew"}
_EVENT_VERBS = f"""
{_CREATION_VERBS} born opened closed introduced adopted passed completed rebuilt electrified destroyed installed launched lit printed published
released renamed abolished formed signed elected restored demolished
"""
_BASES = {"opened": "open", "closed": "close", "died": "die", "began": "begin", "ended": "end", "sank": "sink"}
_AGENT_VERBS = {
    "led": "leads",
    "run": "runs",
    "managed": "manages",
    "chaired": "chairs",
    "edited": "edits",
    "owned": "owns",
}
_SUBJECT = r"(?P<subject>(?:The|An?) [a-z][a-z-]+(?: [a-z-]+){0,3})"
_VAGUE = re.compile(
    r"\b(?:first|second|third|last|other|same|next|former|latter|only|rest|result|one|above|following|has|have|had|is|was|will|may|can|"
    r"must|not|which|who|that)\b"
)
_PERSON_SIGNS = re.compile(r"\b[Hh]e\b|\b[Hh]is\b|\bborn\b|\(\d{4} ?[–-] ?\d{4}\)")


@dataclass(frozen=True)
class Template:
    """A pattern for a statement about a subject, and the question that the statement answers; names in braces are groups of the pattern."""

    pattern: re.Pattern[str]
    question: str


def _templates(*pairs: tuple[str, str]) -> tuple[Template, ...]:
    return tuple(Template(re.compile(pattern), question) for pattern, question in pairs)


_NAMED = _templates(
    (rf"(?P<be>was|were) (?P<first>first )?(?P<done>{'|'.join(_EVENT_VERBS.split())})\b{_WITHIN} (?:in|on) {_DATE}", "When {be} {subject} {first}{done}?"),
    (rf"(?P<past>{'|'.join(_BASES)})\b{_WITHIN} (?:in|on) {_DATE}", "When did {subject} {base}?"),
    (rf"(?P<be>was|were) (?P<done>{'|'.join(_CREATION_VERBS.split())})\b{_WITHIN} by (?:the )?[^\W\d_a-z]", "Who {made} {subject}?"),
    (r"(?P<be>is|are) held\b[^.;]* (?:on the|on|every|each|once|twice) ", "When {be} {subject} held?"),
    (r"is (?:about |some )?\d[\d.,]* [a-z]+ (?P<how>long|high|tall|wide|deep)\b", "How {how} is {subject}?"),
    (r"(?P<stands>stands|lies) (?:in|on|at|above|near|between|beside|off|behind) ", "Where is {subject}?"),
    (r"(?P<be>is|are|was|were) (?:an? |the |one of )", "{what} {be} {subject}?"),
)  # fmt: skip
"""For statements about a document's own subject, the most informative first."""
_DESCRIBED = _templates(
    (rf"{_SUBJECT} is (?P<person>[^\W\d_a-z][\w'’-]+ [^\W\d_a-z][\w'’-]+)(?=[.,;]| and )", "Who is {subject}?"),
    (rf"{_SUBJECT} is (?P<done>{'|'.join(_AGENT_VERBS)}) by ", "Who {agent} {subject}?"),
    (rf"{_SUBJECT} (?P<verb>open|close|start|begin|leave|meet)s (?:at|on|every) ", "When does {subject} {verb}?"),
    (rf"{_SUBJECT} costs? [£$€]?\d", "How much does {subject} cost?"),
    (rf"{_SUBJECT} (?P<verb>last|take)s (?:about )?(?:\d[\d.]*|an?|two|three|half) [a-z]+", "How long does {subject} {verb}?"),
    (rf"{_SUBJECT} is (?:about )?[£$€]\d", "How much is {subject}?"),
    (rf"{_SUBJECT} is (?:about )?\d[\d.]* (?:minutes|hours|days|weeks|months|years)\b", "How long is {subject}?"),
    (r"(?P<subject>[A-Z][a-z]+(?: [a-z]+){0,2}s) are (?P<done>held|collected|paid|made|emptied|posted|inspected) (?:once|twice|every|each|daily|weekly)\b",
     "How often are {subject} {done}?"),
)  # fmt: skip
"""For statements about anything else, in a document whose title is not a name."""


@dataclass(frozen=True)
class Candidate:
    """A question, the document that answers it, what it asks about, and the rank of its template (0 is best)."""

    question: str
    document: int
    subject: str
    rank: int


def suggest_questions(index: Index, count: int) -> tuple[str, ...]:
    """At most `count` questions that the index answers, from different documents and of different kinds where possible; always the same for an index."""
    document_count = len(index.data.document_sources)
    documents = np.unique(np.linspace(0, document_count - 1, min(document_count, MOST_DOCUMENTS)).astype(np.int64))
    candidates = [each for document in documents.tolist() for each in _candidates(index.data, document)]
    documents_of = Counter(subject for subject, _ in {(each.subject, each.document) for each in candidates})
    usable = [
        each for each in candidates if documents_of[each.subject] == 1 and len(each.question) <= MAX_QUESTION_CHARS
    ]
    usable.sort(key=lambda each: (each.rank, content_id(each.question)))
    chosen: list[Candidate] = []
    for differs in (_of_another_kind, _of_another_document):
        for each in usable:
            if len(chosen) < count and all(differs(each, other) for other in chosen):
                chosen.append(each)
    return tuple(each.question for each in chosen)


def _of_another_kind(one: Candidate, other: Candidate) -> bool:
    return _of_another_document(one, other) and one.question.split()[0] != other.question.split()[0]


def _of_another_document(one: Candidate, other: Candidate) -> bool:
    return one.document != other.document


def _candidates(data: IndexData, document: int) -> Iterator[Candidate]:
    first, end = np.searchsorted(data.passage_document_P, [document, document + 1]).tolist()
    passages_P = np.arange(first, min(end, first + PASSAGES_READ))
    if not len(passages_P):
        return
    opening, title = data.passage_texts[first], data.document_titles[document]
    statements = [data.proposition_texts[int(row)] for row in expand_rows(data.passage_proposition_PN, passages_P)[1]]
    name = subject_name(title, opening)
    for statement in dict.fromkeys(statements):
        text = statement.removeprefix(f"{_BRACKETS.sub('', title)}: ")
        result = ask_named(text, name, opening) if name else ask_described(text)
        if result is not None:
            question, subject, rank = result
            yield Candidate(question, document, subject.casefold(), rank)


def subject_name(title: str, opening: str) -> str:
    """How a question names the subject of a document: as the document's first sentence does, if that begins with the title; else "".

    >>> subject_name("Lantern (ferry)", "The Lantern works the sound."), subject_name("Glass Moss", "# Glass Moss\\n\\nGlass moss is a moss.")
    ('the Lantern', 'glass moss')
    >>> subject_name("Ada Marlow", "Ada Marlow (1850–1931) was a shipwright."), subject_name("Pay and pension", "Wages are paid.")
    ('Ada Marlow', '')
    """
    name = re.sub(r"\AThe ", "", _BRACKETS.sub("", title).strip())
    sentence = next((unit.text for unit in split_units(opening) if unit.kind != "heading"), "")
    match = re.match(rf"(?P<the>The )?(?P<name>{re.escape(name)})(?![\w'’])", sentence, re.IGNORECASE)
    if match is None or not _PLAIN_NAME.fullmatch(name):
        return ""
    if match["the"]:
        return f"the {match['name']}"
    is_common = match["name"].partition(" ")[2].islower()
    return match["name"].lower() if is_common else match["name"]


def ask_named(text: str, name: str, opening: str) -> tuple[str, str, int] | None:
    """The question that a statement about a document's own subject answers, the subject, and the rank of its template; None if no template fits.

    >>> ask_named("Lantern was built in 1911 by the Marlow Yard.", "the Lantern", "")
    ('When was the Lantern built?', 'the Lantern', 0)
    >>> ask_named("Ada Marlow was a shipwright.", "Ada Marlow", "He was born in Tarn.")
    ('Who was Ada Marlow?', 'Ada Marlow', 6)
    """
    bare = name.removeprefix("the ")
    subject = re.match(rf"(?:The )?{re.escape(bare)}(?:\s*\([^()]*\))? ", text, re.IGNORECASE)
    if subject is None:
        return None
    what = "What"
    if may_be_person(bare) and not name.startswith("the "):
        what = "Who" if _PERSON_SIGNS.search(opening) else ""
    for rank, template in enumerate(_NAMED):
        match = template.pattern.match(text, subject.end())
        if match is None or ("{what}" in template.question and not what):
            continue
        return template.question.format(**_parts(match, name), what=what), name, rank
    return None


def ask_described(text: str) -> tuple[str, str, int] | None:
    """As `ask_named`, for a statement whose subject is described, not named.

    >>> ask_described("The lunch break lasts 45 minutes and is unpaid.")
    ('How long does the lunch break last?', 'the lunch break', 4)
    >>> ask_described("The first edition costs £3.") is None
    True
    """
    for rank, template in enumerate(_DESCRIBED):
        match = template.pattern.match(text)
        if match is None or _VAGUE.search(match["subject"]):
            continue
        person = match.groupdict().get("person")
        if not may_be_person(person) if person else re.fullmatch(r"The [\w-]+", match["subject"]):
            continue
        subject = match["subject"][0].lower() + match["subject"][1:]
        return template.question.format(**_parts(match, subject)), subject, rank
    return None


def _parts(match: re.Match[str], subject: str) -> dict[str, str]:
    """The parts of a question from a match, with the verbs that it needs."""
    found = {name: value or "" for name, value in match.groupdict().items()}
    done = found.get("done", "")
    verbs = {
        "base": _BASES.get(found.get("past", ""), ""),
        "made": _PAST_TENSES.get(done, done),
        "agent": _AGENT_VERBS.get(done, ""),
    }
    return {**found, **verbs, "subject": subject}
