"""Names in languages without casing: noun-like n-grams by corpus statistics, found when the arrays are derived.

A text gives all its n-grams (characters where a script puts no space between words, words elsewhere). One is kept as a name if at
least two propositions have it or a document is called so, if it is not as frequent as a function word, and if no longer one
stands wherever it does. All of it follows from what the index holds, so the order in which documents came has no say.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from graph.extract.names import name_key
from graph.scripts import MARKS, UNSPACED, is_caseless

MAX_CHARACTERS, MAX_WORDS = 6, 3
MIN_PROPOSITIONS = 2
MAX_SHARE, RARE = 0.1, 10
"""A term in more than RARE propositions and more than this share of them is a function word."""
_RUN = re.compile(rf"(?P<unspaced>[{UNSPACED}]+)|(?:(?![{UNSPACED}])[^\W\d_]|[{MARKS}])+")
_PARTICLES = re.compile(
    "[のはがをにでともへやかなりるたてしれすられさせまでき的了是在和与及也就都而被把于這这那等有他她它我你們们個个]+"
)
"""Characters that mostly stand between nouns: cut there. The statistics would find most of them, given enough text."""


def caseless_terms(texts: Sequence[str], known: Collection[str]) -> list[tuple[int, str]]:
    """(row, term) for every term of every caseless text, by row, then term; `known` are the keys of documents' names."""
    found = {row: sorted(set(candidates(text))) for row, text in enumerate(texts) if is_caseless(text)}
    counts = Counter(term for terms in found.values() for term in terms)
    called = set(known)
    most = max(RARE, MAX_SHARE * len(found))
    kept = {term for term, count in counts.items() if term in called or MIN_PROPOSITIONS <= count <= most}
    kept -= {part for term in kept for part in _parts(term) if counts[part] == counts[term] and part not in called}
    return [(row, term) for row, terms in found.items() for term in terms if term in kept]


def candidates(text: str) -> Iterator[str]:
    """All n-grams of a text that may be names: 2 to 6 characters between particles, or 1 to 3 words.

    >>> list(candidates("東京の塔と港")), list(candidates("برج المدينة"))
    (['東京'], ['برج', 'المدينة', 'برج المدينة'])
    """
    words: list[str] = []
    for match in _RUN.finditer(text):
        if match["unspaced"] is None:
            words.append(name_key(match[0]))
            continue
        for piece in _PARTICLES.split(match[0]):
            yield from _grams(list(piece), "", 2, MAX_CHARACTERS)
    yield from (term for term in _grams(words, " ", 1, MAX_WORDS) if len(term) > 2)


def _grams(units: Sequence[str], joint: str, shortest: int, longest: int) -> Iterator[str]:
    for length in range(shortest, longest + 1):
        for start in range(len(units) - length + 1):
            yield joint.join(units[start : start + length])


def _parts(term: str) -> tuple[str, ...]:
    """What is left of a term without its first, and without its last, unit."""
    if " " in term:
        return term.partition(" ")[2], term.rpartition(" ")[0]
    return (term[1:], term[:-1]) if _RUN.fullmatch(term) and re.match(f"[{UNSPACED}]", term) else ()
