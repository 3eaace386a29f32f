"""Propositions without a model: one per sentence, list item or table row, made to stand on its own as far as rules go.

De-contextualising: a sentence that opens with a pronoun gets the document's subject in its place; a sentence, list item or
table row that does not name the subject gets it in front; a table row is told as "header: value" pairs (HLG §4.3.2).
"""

import re
from collections.abc import Iterable, Sequence

from graph.extract.aliases import people_by_surname
from graph.extract.entities import distinct_entities, entity_key, find_entities
from graph.extract.types import Occurrence
from graph.extract.units import Unit, split_units
from graph.shared.types import Document, Passage
from graph.text.scripts import unspaced_runs

MAX_TITLED_PASSAGES = 8
"""A longer document is about many things: there the nearest heading, not the title, is the subject."""

_PRONOUN = re.compile(r"^(He|She|It|They|His|Her|Its|Their)\b(?!['’])")
_POSSESSIVE_PRONOUNS = frozenset({"His", "Her", "Its", "Their"})
_OBJECT_AFTER_HER = re.compile(r"^Her (?:was|is|had|has|were)\b")
_BRACKETS = re.compile(r"\s*(?:\([^()]*\)|（[^（）]*）)$")
_PLACED = re.compile(r"\b(?:in|at|near) ([^\W\d_]+)\b(?!['’])")
MIN_WORDS = 2
CHARACTERS_A_WORD = 2


def extract_by_rules(document: Document, passages: Sequence[Passage]) -> list[tuple[Occurrence, ...]]:
    """The occurrences of every passage, read from this document alone (an `Extract`)."""
    titled = len(passages) <= MAX_TITLED_PASSAGES
    title = _BRACKETS.sub("", document.title.strip())
    inner = _inner_entities(passages)
    surnames = _surnames(passages, [*inner.values(), title])
    known = {*inner, *surnames, entity_key(title)}
    subject = title if titled else ""
    results = []
    for passage in passages:
        occurrences = []
        for unit in split_units(passage.text):
            if unit.kind == "heading":
                subject = title if titled and title else unit.text
                continue
            lead, body = _standalone(unit, subject)
            if not says_something(body):
                continue
            found = find_entities(body, known)
            whole = tuple(surnames[entity_key(entity)] for entity in found if entity_key(entity) in surnames)
            entities = ((subject,) if lead else ()) + found + whole
            start = passage.start + unit.start
            occurrences.append(Occurrence(lead + body, distinct_entities(entities), start, start + len(unit.text)))
        results.append(tuple(occurrences))
    return results


def says_something(text: str) -> bool:
    """Whether a text has two words, or in a script without spaces as many characters as two words have.

    >>> says_something("Contents"), says_something("It burned."), says_something("塔"), says_something("塔は高い。")
    (False, True, False, True)
    """
    words = sum(any(map(str.isalpha, word)) for word in text.split())
    return words >= MIN_WORDS or sum(map(len, unspaced_runs(text))) >= MIN_WORDS * CHARACTERS_A_WORD


def _standalone(unit: Unit, subject: str) -> tuple[str, str]:
    """The unit's text with line ends folded, and what must stand before it ("Subject: ") to stand alone."""
    if unit.cells:
        told = "; ".join(f"{header}: {value}" if header else value for header, value in unit.cells)
        return (f"{subject}: " if subject else "", told)
    text = " ".join(unit.text.split())
    if not subject or names_subject(text, subject):
        return "", text
    pronoun = _PRONOUN.match(text)
    if pronoun is None:
        return f"{subject}: ", text
    possessive = pronoun[1] in _POSSESSIVE_PRONOUNS and not _OBJECT_AFTER_HER.match(text)
    return "", subject + ("'s" if possessive else "") + text[pronoun.end() :]


def names_subject(text: str, subject: str) -> bool:
    """Whether `text` already names `subject`: by its whole name, or by a word of it that no other name would share.

    >>> names_subject("Gábor directed 20 films.", "Pál Gábor"), names_subject("He directed 20 films.", "Pál Gábor")
    (True, False)
    """
    if unspaced_runs(subject):
        return subject in text
    words = {word.casefold() for word in re.findall(r"\w+", text)}
    own = [word.casefold() for word in re.findall(r"\w+", subject) if len(word) > 3] or [subject.casefold()]
    return own[-1] in words or all(word in words for word in own)


def _surnames(passages: Sequence[Passage], entities: Iterable[str]) -> dict[str, str]:
    """The full name behind each surname of the document's people, unless a place in it is called so too."""
    places = {match[1].casefold() for passage in passages for match in _PLACED.finditer(passage.text)}
    return {surname: full for surname, full in people_by_surname(entities).items() if surname not in places}


def _inner_entities(passages: Sequence[Passage]) -> dict[str, str]:
    """Entities, by key, that stand inside a sentence somewhere in the document, where a capital letter means a name."""
    entities: dict[str, str] = {}
    for passage in passages:
        for unit in split_units(passage.text):
            inner = unit.text.partition(" ")[2]
            for entity in find_entities("x " + inner):
                entities.setdefault(entity_key(entity), entity)
    return entities
