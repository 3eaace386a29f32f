"""Propositions without a model: one per sentence, list item or table row, made to stand on its own as far as rules go.

De-contextualising: a sentence, list item or table row that does not name the document's title (in long documents: the nearest heading) gets it
in front, which claims nothing; a table row becomes "header: value" pairs (HLG §4.3.2). A pronoun that opens a sentence is replaced where it is
plain who is meant: by the title, if the document's first sentence has it as its subject, or by the person who is the subject of the sentence
before. A title or heading that is a topic ("Leave and holidays") is no entity.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from graph.extract.entities import (
    distinct_entities,
    entity_key,
    find_entities,
    may_be_person,
    people_by_surname,
    title_keys,
)
from graph.extract.extraction import Occurrence
from graph.text.scripts import unspaced_runs
from graph.text.sentences import Unit, split_units
from graph.types import Document, Passage

MAX_TITLED_PASSAGES = 8
"""A longer document is about many things: there the nearest heading, not the title, is the subject."""

_PRONOUN = re.compile(r"^(He|She|It|They|His|Her|Its|Their)\b(?!['’])")
_POSSESSIVE_PRONOUNS = frozenset({"His", "Her", "Its", "Their"})
_OF_PEOPLE = frozenset({"He", "She", "His", "Her"})
_OF_WOMEN = frozenset({"She", "Her"})
_OF_SEVERAL = frozenset({"They", "Their"})
_DETERMINER = re.compile(r"\A(?:The|A|An) ", re.IGNORECASE)
_PLURAL = re.compile(r"[^s]s\b|\band\b")
_APART = 4
"""Words that may stand between the first and the last word of a name where it is written out: "Ada Jane (Lovett) Marlow"."""
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
    about = opens_with(next(_sentences(passages), ""), title)
    lead = title if titled else ""
    results = []
    for passage in passages:
        occurrences = []
        reader = _Reader(title if about else "")
        for unit in split_units(passage.text):
            if unit.kind == "heading":
                lead = title if titled and title else unit.text
                reader = _Reader(title if about else "")
                continue
            body = _text_of(unit)
            if not says_something(body):
                continue
            own = body if unit.cells else reader.with_subject(body, find_entities(body, known))
            named = own.startswith(lead) or names_subject(own, lead)
            headed = bool(lead) and (bool(unit.cells) or not named)
            found = find_entities(own, known)
            whole = tuple(surnames[entity_key(entity)] for entity in found if entity_key(entity) in surnames)
            is_entity = headed and (is_name(lead, inner) or (about and lead == title))
            entities = ((lead,) if is_entity else ()) + found + whole
            start = passage.start + unit.start
            text = f"{lead}: {own}" if headed else own
            occurrences.append(Occurrence(text, distinct_entities(entities), start, start + len(unit.text)))
        results.append(tuple(occurrences))
    return results


def is_name(title: str, inner: Collection[str]) -> bool:
    """Whether a title or heading is somebody's or something's name, not a topic: the text has it among its names (`inner`, by key), or all its words are capitalised.

    >>> is_name("Port Ellery, Quill", {"port ellery"}), is_name("Great Orrin", ()), is_name("Leave and holidays", ()), is_name("Complaints", ())
    (True, True, False, False)
    """
    if any(key in inner for key in title_keys(title)):
        return True
    words = re.findall(r"[^\W\d_]{4,}", title)
    return " " in title and bool(words) and all(word[0].isupper() for word in words)


def opens_with(sentence: str, name: str) -> bool:
    """Whether a sentence has a name as its subject: it begins with it, or with its first word and then, few words on, its last.

    >>> opens_with("Ada Jane Marlow (1881–1950) built boats.", "Ada Marlow"), opens_with("The Lantern is a ferry.", "Lantern")
    (True, True)
    >>> opens_with("Ines Calloway is in charge of safety in the workshop.", "Workshop safety")
    False
    """
    if not name:
        return False
    if unspaced_runs(name):
        return sentence.startswith(name)
    own = re.findall(r"\w+", _DETERMINER.sub("", name, count=1).casefold())
    words = re.findall(r"\w+", _DETERMINER.sub("", sentence, count=1).casefold())[: len(own) + _APART]
    return bool(own) and words[:1] == own[:1] and own[-1] in words[len(own) - 1 :]


@dataclass
class _Reader:
    """Reads the sentences below one heading in order, and knows whom a pronoun at the beginning of the next one means.

    `title` is the document's, where that is about a person or thing of this name, else "".
    """

    title: str
    person: str = field(init=False)
    thing: str = field(init=False)
    female: dict[str, bool] = field(init=False, default_factory=dict)
    """What pronouns have said of people."""

    def __post_init__(self) -> None:
        self.person = self._titled_person()
        self.thing = self.title

    def with_subject(self, text: str, entities: Sequence[str]) -> str:
        """The sentence with its subject in the place of the pronoun that opens it, where that is plain; else as it stands."""
        pronoun = _PRONOUN.match(text)
        if pronoun is None:
            self._remember(text, entities)
            return text
        subject = self._meant(pronoun[1])
        if not subject:
            return text
        possessive = pronoun[1] in _POSSESSIVE_PRONOUNS and not _OBJECT_AFTER_HER.match(text)
        return subject + ("'s" if possessive else "") + text[pronoun.end() :]

    def _meant(self, pronoun: str) -> str:
        if pronoun in _OF_PEOPLE:
            self.thing = ""
            female = pronoun in _OF_WOMEN
            if self.female.setdefault(self.person, female) != female:
                self.person = ""
            return self.person
        self.person = self.person if self.person == self.title else ""
        if pronoun in _OF_SEVERAL:
            return self.thing if _PLURAL.search(self.thing) else ""
        return "" if may_be_person(self.thing) or _PLURAL.search(self.thing) else self.thing

    def _titled_person(self) -> str:
        return self.title if len(self.title.split()) == 1 or may_be_person(self.title) else ""

    def _remember(self, text: str, entities: Sequence[str]) -> None:
        """A sentence's own subject is meant by the next pronoun; another person in it leaves in doubt who is."""
        people = [one for one in entities if may_be_person(one) and not (self.title and names_subject(one, self.title))]
        opens = bool(self.title) and (opens_with(text, self.title) or _opens_with_part(text, self.title))
        self.thing = self.title if opens else ""
        if opens:
            self.person = self._titled_person()
        elif people:
            first = re.match(rf"{re.escape(people[0])}\b(?! [A-Z])", text)
            self.person = people[0] if len(people) == 1 and first else ""


def says_something(text: str) -> bool:
    """Whether a text has two words, or in a script without spaces as many characters as two words have.

    >>> says_something("Contents"), says_something("It burned."), says_something("塔"), says_something("塔は高い。")
    (False, True, False, True)
    """
    words = sum(any(map(str.isalpha, word)) for word in text.split())
    return words >= MIN_WORDS or sum(map(len, unspaced_runs(text))) >= MIN_WORDS * CHARACTERS_A_WORD


def _text_of(unit: Unit) -> str:
    """A unit's text with line ends folded; a row as "header: value" pairs."""
    if unit.cells:
        return "; ".join(f"{header}: {value}" if header else value for header, value in unit.cells)
    return " ".join(unit.text.split())


def _sentences(passages: Sequence[Passage]) -> Iterator[str]:
    """What the passages say in sentences, line ends folded."""
    return (_text_of(unit) for passage in passages for unit in split_units(passage.text) if unit.kind == "sentence")


def _opens_with_part(text: str, name: str) -> bool:
    """Whether a sentence begins with the last word of a person's name: "Marlow built boats." of Ada Marlow."""
    return may_be_person(name) and text.startswith(name.split()[-1])


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
