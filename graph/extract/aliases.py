"""Spellings of one person: "J. Smith" where the index has one John Smith, a bare "Smith" where a document has one.

Initials are looked at when the arrays are derived, from the entities alone, so that it does not matter in which order documents
came; a second name that fits makes the initial ambiguous, and the alias goes. Surnames are looked at when a document is read,
from that document alone. What is in doubt gives no alias.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from graph.extract.entities import MONTHS, entity_key

MAX_GIVEN_NAMES = 3
_INITIAL = re.compile(r"[^\W\d_]\.")
_WORD = re.compile(r"[^\W\d_]['-]?[^\W\d_]+(?:['-][^\W\d_]+)*")
_FORM_OF_ADDRESS = re.compile(r"(?:(?:dr|prof|mr|mrs|ms|rev|hon|capt|col|gen|lt)\.?|sir|dame) ")
_PLACES_AND_PEOPLES = """
and at battle big cape church college for fort grand great house in kingdom la lake las le little los lower mount
national new north of old on port republic river royal saint san santa south st the to treaty united university
upper west east
"""
_OF_NO_PERSON = frozenset(_PLACES_AND_PEOPLES.split())
"""Words of places, peoples and titles: no name with one of them is a person's ("New York" is nobody York)."""
_MONTHS = frozenset(MONTHS.casefold().split("|"))

Person = tuple[str, ...]
"""Given names or initials, then the surname."""


def full_names(keys: Sequence[str]) -> list[tuple[int, int]]:
    """(row, row of the full name) for every key of initials and a surname that exactly one full name fits, by row.

    >>> full_names(["j. smith", "john smith", "j. r. smith", "ann smith"])
    [(0, 1)]
    """
    people = [(row, person) for row, key in enumerate(keys) if (person := _person(key))]
    full: dict[tuple[str, str], dict[Person, int]] = defaultdict(dict)
    for row, person in people:
        if not _INITIAL.fullmatch(person[0]):
            same_initial = full[person[-1], person[0][0]]
            if person not in same_initial or " ".join(person) == keys[row]:
                same_initial[person] = row
    pairs = []
    for row, person in people:
        if _is_short(person):
            fitting = [other for name, other in full[person[-1], person[0][0]].items() if _fits(person, name)]
            pairs += [(row, fitting[0])] if len(fitting) == 1 else []
    return pairs


def surname_of_initials(key: str) -> str:
    """The surname of a key of initials and a surname; "" for any other key.

    >>> surname_of_initials("j. r. smith"), surname_of_initials("john smith")
    ('smith', '')
    """
    person = _person(key)
    return person[-1] if person and _is_short(person) else ""


def people_by_surname(names: Iterable[str]) -> dict[str, str]:
    """The full name behind each surname (`entity_key`) that only one of a document's people has.

    >>> people_by_surname(["Ada Marlow", "A. Marlow", "Jonas Reed", "L. Reed", "New York", "Great Orrin"])
    {'marlow': 'Ada Marlow'}
    """
    spelling: dict[Person, str] = {}
    by_surname: dict[str, set[Person]] = defaultdict(set)
    for name in names:
        person = _person(entity_key(name))
        if person and all(word[0].isupper() for word in name.split()):
            by_surname[person[-1]].add(person)
            spelling.setdefault(person, name)
    found = {}
    for surname, people in by_surname.items():
        full = [person for person in people if not _INITIAL.fullmatch(person[0])]
        if len(full) == 1 and surname not in _MONTHS and all(_fits(person, full[0]) for person in people - {*full}):
            found[surname] = spelling[full[0]]
    return found


def may_be_person(name: str) -> bool:
    """Whether a name may be a person's: two to four capitalised words or initials, none of them of places or peoples.

    >>> may_be_person("Ada Marlow"), may_be_person("New York"), may_be_person("Staff Handbook"), may_be_person("Lantern")
    (True, False, True, False)
    """
    return bool(_person(entity_key(name))) and all(word[0].isupper() for word in name.split())


def _person(key: str) -> Person:
    """The words of a key that may be a person's name, without a form of address; none of any other key."""
    words = tuple(_FORM_OF_ADDRESS.sub("", key, count=1).replace(".", ". ").split())
    may_be = 2 <= len(words) <= 1 + MAX_GIVEN_NAMES and _OF_NO_PERSON.isdisjoint(words) and _WORD.fullmatch(words[-1])
    return words if may_be and all(_WORD.fullmatch(word) or _INITIAL.fullmatch(word) for word in words[:-1]) else ()


def _is_short(person: Person) -> bool:
    return all(map(_INITIAL.fullmatch, person[:-1]))


def _fits(short: Person, full: Person) -> bool:
    """Whether initials are those of the first given names of a person with that surname."""
    letters = zip(short[:-1], full[:-1], strict=False)
    return _is_short(short) and len(short) <= len(full) and all(given[0] == initial[0] for initial, given in letters)
