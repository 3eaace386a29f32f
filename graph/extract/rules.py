"""Propositions without a model: one per sentence (of prose or of a list item) or table row, made self-contained as far as rules can.

De-contextualising: a sentence that does not name the document's title (in long or untitled documents: the nearest heading) gets it as a prefix,
which adds no claim; a table row always gets it, and becomes "header: value" pairs (HLG §4.3.2). A pronoun at the start of a sentence is replaced if
its antecedent is clear: the title, if it is the subject of the document's first sentence, or the person who is the subject of the last sentence
that names people. A title of one word counts as a person if the document's first pronoun is he or she, and no sentence before it has another person as
its subject. Passages in other languages keep their pronouns ("Her" is a word of Danish). A title or heading that is a topic ("Leave and holidays") is
not an entity.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from graph.extract.entities import (
    BRACKETS,
    distinct_entities,
    entity_key,
    find_entities,
    may_be_person,
    people_by_surname,
    title_keys,
)
from graph.extract.extraction import Occurrence, PendingDocument, Reading
from graph.extract.grounding import words_of
from graph.text.sentences import split_units
from graph.text.word_forms import (
    CHARACTERS_PER_WORD,
    FOREIGN_FUNCTION_WORDS,
    FUNCTION_WORDS,
    composed,
    unspaced_runs,
)
from graph.types import Document, Passage

READER = "rules"
MAX_TITLED_PASSAGES = 8
"""A longer document covers several subjects, so the nearest heading is used as the subject instead of the title."""

_PRONOUN = re.compile(r"^(He|She|It|They|His|Her|Its|Their)\b(?!['’])")
_POSSESSIVE_PRONOUNS = frozenset({"His", "Her", "Its", "Their"})
_PERSONAL = frozenset({"He", "She", "His", "Her"})
_FEMALE = frozenset({"She", "Her"})
_PLURAL_PRONOUNS = frozenset({"They", "Their"})
_PERSONAL_OR_NOT = re.compile(r"\b(?:(?P<personal>[Hh](?:e|im|is|ers?)|[Ss]he)|[Ii]ts?)\b")
_ENGLISH = FUNCTION_WORDS - {"at", "by", "for", "her", "on", "over", "to", "under"}
"""Function words of English that are not also words of Danish, Norwegian or Turkish."""
_EXPLETIVE = re.compile(
    r"It (?:(?:is|was) (?:(?:not|very|most|more|quite|\w+ly) )?"
    r"(?:\w+ that|(?:(?:un|im)?possible|(?:un)?necessary|easy|easier|hard|harder|difficult|important|essential|vital|customary"
    r"|usual|common|good|better|best|wise|illegal|forbidden) (?:for .+ )?to|(?:about |only )?\d[\d.,]*\s?[^\W\d]+ (?:from|to))"
    r"|(?:seems|seemed|appears|appeared) that|rain(?:s|ed)|snow(?:s|ed))\b"
)
"""The start of a sentence whose "It" refers to nothing: "It is likely that", "It is 12 km from"."""
_DETERMINER = re.compile(r"\A(?:The|A|An) ", re.IGNORECASE)
_PLURAL = re.compile(r"[^s]s\b|\band\b")
_MAX_EXTRA_WORDS = 4
"""The maximum number of extra words between the first and the last word of a name: "Ada Jane (Lovett) Marlow"."""
_HER_WITHOUT_NOUN = re.compile(r"^Her (?:was|is|had|has|were)\b")
_FINAL_BRACKETS = re.compile(f"{BRACKETS.pattern}$")
_PLACE = re.compile(r"\b(?:in|at|near) ([^\W\d_]+)\b(?!['’])")
MIN_WORDS = 2


def read_by_rules(item: PendingDocument) -> list[Reading]:
    """The readings, by rules, of a document whose passages are all pending."""
    occurrences = extract_by_rules(item.document, item.passages)
    return [Reading(passage, READER, found) for passage, found in zip(item.passages, occurrences, strict=True)]


def extract_by_rules(document: Document, passages: Sequence[Passage]) -> list[tuple[Occurrence, ...]]:
    """The occurrences of every passage, from this document alone."""
    by_title = len(passages) <= MAX_TITLED_PASSAGES
    title = _FINAL_BRACKETS.sub("", composed(document.title.strip()))
    inner = _inner_entities(passages)
    surnames = _surnames(passages, [*inner.values(), title])
    known = {*inner, *surnames, entity_key(title)}
    about = title if opens_with(next(_sentences(passages), ""), title) else ""
    person = about if _is_person(about, passages) else ""
    subject = title if by_title else ""
    results = []
    for passage in passages:
        occurrences = []
        resolver = _PronounResolver(about, person)
        in_english = _is_english(passage.text)
        for unit in split_units(passage.text, passage.header):
            if unit.kind == "heading":
                subject = title if by_title and title else composed(unit.text)
                resolver = _PronounResolver(about, person)
                continue
            body = composed(unit.line)
            if not unit.cells and not has_words(body):
                continue
            may_resolve = in_english and not unit.cells
            resolved = resolver.with_subject(body, find_entities(body, known)) if may_resolve else body
            named = resolved.startswith(subject) or names_subject(resolved, subject)
            prefixed = bool(subject) and (bool(unit.cells) or not named)
            mentioned = find_entities(resolved, known)
            full_names = tuple(surnames[entity_key(entity)] for entity in mentioned if entity_key(entity) in surnames)
            is_entity = prefixed and (is_name(subject, inner) or subject == about)
            entities = ((subject,) if is_entity else ()) + mentioned + full_names
            start = passage.start + unit.start
            text = f"{subject}: {resolved}" if prefixed else resolved
            occurrences.append(Occurrence(text, distinct_entities(entities), start, start + len(unit.text)))
        results.append(tuple(occurrences))
    return results


def is_name(title: str, inner: Collection[str]) -> bool:
    """Whether a title or heading is a name, not a topic: one of its keys is among the names in the text (`inner`), or it consists of several words,
    of which all that have four or more letters are capitalised.

    >>> is_name("Port Ellery, Quill", {"port ellery"}), is_name("Great Orrin", ()), is_name("Leave and holidays", ()), is_name("Complaints", ())
    (True, True, False, False)
    """
    if any(key in inner for key in title_keys(title)):
        return True
    words = re.findall(r"[^\W\d_]{4,}", title)
    return " " in title and bool(words) and all(word[0].isupper() for word in words)


def opens_with(sentence: str, name: str) -> bool:
    """Whether a name is the subject of a sentence: the sentence begins with the name, or with its first word and, a few words later, its last.

    >>> opens_with("Ada Jane Marlow (1881–1950) built boats.", "Ada Marlow"), opens_with("The Lantern is a ferry.", "Lantern")
    (True, True)
    >>> opens_with("Ines Calloway is in charge of safety in the workshop.", "Workshop safety")
    False
    """
    if not name:
        return False
    if unspaced_runs(name):
        return sentence.startswith(name)
    name_words = re.findall(r"\w+", _DETERMINER.sub("", name, count=1).casefold())
    words = re.findall(r"\w+", _DETERMINER.sub("", sentence, count=1).casefold())[: len(name_words) + _MAX_EXTRA_WORDS]
    return bool(name_words) and words[:1] == name_words[:1] and name_words[-1] in words[len(name_words) - 1 :]


class _PronounResolver:
    """Resolves the pronouns at the start of sentences, read in order, within one passage and below one heading.

    `title` is the document's title if the document is about a person or thing of this name, else ""; `titled_person` is the title if it may be a
    person's, else "".
    """

    def __init__(self, title: str, titled_person: str) -> None:
        self.title = self.thing = title
        self.titled_person = self.person = titled_person
        self.female: dict[str, bool] = {}
        """For each person, whether the pronouns used for them are feminine."""

    def with_subject(self, text: str, entities: Sequence[str]) -> str:
        """The sentence with the pronoun at its start replaced by the subject, if that is clear; else unchanged."""
        pronoun = _PRONOUN.match(text)
        if pronoun is None or _EXPLETIVE.match(text):
            self._remember(text, entities)
            return text
        subject = self._antecedent(pronoun[1])
        if not subject:
            return text
        possessive = pronoun[1] in _POSSESSIVE_PRONOUNS and not _HER_WITHOUT_NOUN.match(text)
        return subject + ("'s" if possessive else "") + text[pronoun.end() :]

    def _antecedent(self, pronoun: str) -> str:
        if pronoun in _PERSONAL:
            self.thing = ""
            female = pronoun in _FEMALE
            if self.female.setdefault(self.person, female) != female:
                self.person = ""
            return self.person
        self.person = self.person if self.person == self.title else ""
        if pronoun in _PLURAL_PRONOUNS:
            return self.thing if _PLURAL.search(self.thing) else ""
        return "" if may_be_person(self.thing) or _PLURAL.search(self.thing) else self.thing

    def _remember(self, text: str, entities: Sequence[str]) -> None:
        """Remember the subject of a sentence as the antecedent of later pronouns.

        If the sentence begins with the title (or with the last word of a title that may be a person's name), `thing` becomes the title, and
        `person` becomes `titled_person`. Otherwise `thing` becomes ""; `person` becomes the only person named, if the sentence begins with
        that name, else "", and is unchanged if the sentence names nobody.
        """
        title = self.title
        people = [name for name in entities if may_be_person(name) and not (title and names_subject(name, title))]
        opens = opens_with(text, title) or _opens_with_part(text, title)
        self.thing = title if opens else ""
        if opens:
            self.person = self.titled_person
        elif people:
            first = re.match(rf"{re.escape(people[0])}\b(?! [A-Z])", text)
            self.person = people[0] if len(people) == 1 and first else ""


def has_words(text: str) -> bool:
    """Whether a text contains at least two words or, in a script without spaces, as many characters as two words.

    >>> has_words("Contents"), has_words("It burned."), has_words("塔"), has_words("塔は高い。")
    (False, True, False, True)
    """
    words = sum(any(map(str.isalpha, word)) for word in text.split())
    return words >= MIN_WORDS or sum(map(len, unspaced_runs(text))) >= MIN_WORDS * CHARACTERS_PER_WORD


def _sentences(passages: Sequence[Passage]) -> Iterator[str]:
    """The sentences of the passages, each on one line."""
    return (
        composed(unit.line)
        for passage in passages
        for unit in split_units(passage.text, passage.header)
        if unit.kind == "sentence"
    )


def _is_english(text: str) -> bool:
    words = words_of(text)
    return len(words & _ENGLISH) >= len(words & FOREIGN_FUNCTION_WORDS)


def _is_person(title: str, passages: Sequence[Passage]) -> bool:
    """Whether a title may be a person's; one of a single word, if the text's first pronoun is personal, and no other person is the subject before it."""
    if len(title.split()) != 1:
        return may_be_person(title)
    for sentence in _sentences(passages):
        plain = BRACKETS.sub("", sentence)
        pronoun = _PERSONAL_OR_NOT.search(plain)
        before = plain[: pronoun.start()] if pronoun else plain
        subjects = (name for name in find_entities(before) if _is_subject(name, before))
        if any(may_be_person(name.title()) and not names_subject(name, title) for name in subjects):
            return False
        if pronoun:
            return pronoun["personal"] is not None
    return False


def _is_subject(name: str, sentence: str) -> bool:
    """Whether a name begins a sentence or follows "by", "is" or "was"."""
    return re.search(rf"(?:\A|\b(?:by|is|was) ){re.escape(name)}", sentence) is not None


def _opens_with_part(text: str, name: str) -> bool:
    """Whether a sentence begins with the last word of a person's name: "Marlow built boats." for Ada Marlow."""
    return may_be_person(name) and text.startswith(name.split()[-1])


def names_subject(text: str, subject: str) -> bool:
    """Whether `text` already names `subject`: by its last word of four or more letters (if it has none, by the whole subject as one word) or, in a
    script without spaces, in full.

    >>> names_subject("Gábor directed 20 films.", "Pál Gábor"), names_subject("He directed 20 films.", "Pál Gábor")
    (True, False)
    """
    if unspaced_runs(subject):
        return subject in text
    words = {word.casefold() for word in re.findall(r"\w+", text)}
    subject_words = [word.casefold() for word in re.findall(r"\w+", subject) if len(word) > 3] or [subject.casefold()]
    return subject_words[-1] in words


def _surnames(passages: Sequence[Passage], entities: Iterable[str]) -> dict[str, str]:
    """The full name for each surname of the document's people, except surnames that are also places in the document."""
    places = {match[1].casefold() for passage in passages for match in _PLACE.finditer(composed(passage.text))}
    return {surname: full for surname, full in people_by_surname(entities).items() if surname not in places}


def _inner_entities(passages: Sequence[Passage]) -> dict[str, str]:
    """Entities, by key, that occur inside a sentence of the document, where a capital letter indicates a name."""
    entities: dict[str, str] = {}
    for passage in passages:
        for unit in split_units(passage.text, passage.header):
            inner = unit.text.partition(" ")[2]
            for entity in find_entities("x " + inner):
                entities.setdefault(entity_key(entity), entity)
    return entities
