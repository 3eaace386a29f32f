"""Which words of a passage a sentence repeats: the one or two of its sentences that say most of it, and the words matched in order."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from graph.verify.words import Words, form

_BRACKETS = re.compile(r"\([^()]*\)")
NAME_WEIGHT, TITLE_WEIGHT = 2.0, 0.25
"""A name or number that a source sentence shares counts as much as two other words, a word of a title as a quarter of one."""
MIN_GAIN = 2
"""Words that a second sentence must add to be read together with the first."""
REFERRING = frozenset(["he", "she", "it", "they", "his", "her", "its", "their", "him", "them", "this", "these"])
OPENING_WORDS = 3
"""A sentence with one of REFERRING among so many first words speaks of what another has named."""


@dataclass(frozen=True)
class Source:
    """What of the passages a sentence is read against: the words of their best sentence or two. `added` are those that the second adds,
    `aside` the stems of what stands in brackets.

    `joint` is the place from which on the words are those of a sentence that refers back to the one before them; 0 where there is none.
    What it refers to has no place in it, so order and neighbours are told on either side alone.
    """

    words: Words
    added: int
    aside: frozenset[str]
    joint: int

    @classmethod
    def of(cls, text: str, following: str = "", added: int = 0) -> Source:
        """The source that is this text, or this one and the one that stands somewhere after it."""
        whole = f"{text} {following}".strip()
        aside = (stem for found in _BRACKETS.finditer(whole) for stem in Words.of(found[0]).stems)
        refers = REFERRING.intersection(Words.of(following).lower[:OPENING_WORDS])
        joint = len(Words.of(_BRACKETS.sub(" ", text)).words) if refers else 0
        return cls(Words.of(asides_last(whole)), added, frozenset(aside), joint)

    def sides(self, places: Iterable[int]) -> tuple[list[int], list[int]]:
        """Places before the joint, and from it on.

        >>> Source.of("Ada built it.", "Her yard (burned in 1911) was large.").sides([0, 3, 5])
        ([0], [3, 5])
        """
        both: tuple[list[int], list[int]] = [], []
        for place in places:
            both[place >= self.joint].append(place)
        return both

    def are_apart(self, one: int, other: int) -> bool:
        """Whether two places are on different sides."""
        return (one >= self.joint) != (other >= self.joint)


def asides_last(text: str) -> str:
    """The text with what stands in brackets behind all else, so that it parts no neighbours.

    >>> asides_last("Ada (born 1850) built it.")
    'Ada built it. (born 1850)'
    """
    asides = [found[0] for found in _BRACKETS.finditer(text)]
    return " ".join([re.sub(r" +([.,;])", r"\1", " ".join(_BRACKETS.sub(" ", text).split())), *asides])


def best_source(
    claim: Words, sentences: Sequence[str], words_N: Sequence[Words], titled: Collection[str] = ()
) -> Source:
    """The sentence that shares most of a claim's words, with the one that adds most to it where that is MIN_GAIN or more.

    Words of titles (stems) tell little: a passage speaks of its title in all of its sentences, and may not name it.
    """
    if not sentences:
        return Source.of("")
    stems_N = [words.stem_set for words in words_N]

    def worth(at: int) -> float:
        if claim.stems[at] in titled:
            return TITLE_WEIGHT
        return NAME_WEIGHT if claim.is_number(at) or claim.is_name(at) else 1

    def weight(stems: frozenset[str]) -> float:
        return sum(worth(at) for at in claim.content if claim.stems[at] in stems)

    first = max(range(len(sentences)), key=lambda place: (weight(stems_N[place]), -place))
    left = [stem for at in claim.content if (stem := claim.stems[at]) not in stems_N[first] and stem not in titled]
    gains = [sum(stem in stems for stem in left) for stems in stems_N]
    second = max(range(len(sentences)), key=lambda place: (gains[place], -place))
    if gains[second] < MIN_GAIN:
        return Source.of(sentences[first])
    low, high = sorted((first, second))
    return Source.of(sentences[low], sentences[high], gains[second])


def align(claim: Words, source: Words) -> dict[int, int]:
    """Places of the claim's content words to places of the same words in the source; of several, the one that goes on from the last.

    >>> align(Words.of("Ada built Lantern"), Words.of("The Lantern was built by Ada"))
    {0: 5, 1: 3, 2: 1}
    """
    places: dict[str, list[int]] = {}
    alike: dict[str, list[int]] = {}
    for place, stem in enumerate(source.stems):
        places.setdefault(stem, []).append(place)
        alike.setdefault(form(stem), []).append(place)
    found: dict[int, int] = {}
    last = -1
    for at in claim.content:
        stem = claim.stems[at]
        if known := places.get(stem) or alike.get(form(stem)):
            last = found[at] = min(known, key=lambda place: abs(place - last - 1))
    return found
