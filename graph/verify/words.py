"""A text as words that can be compared: stems, and which of them are names, numbers, negations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from graph.text.scripts import UNSPACED
from graph.verify.vocabulary import FUNCTION_WORDS, NEGATORS

_WORD = re.compile(rf"[{UNSPACED}]|[^\W_{UNSPACED}]+(?:['’.,/-][^\W_{UNSPACED}]+)*")
_ENDINGS = ("ing", "edly", "ed", "es", "ly", "s")
_SHORTEST_STEM = 4
_SHARED_LETTERS = 5
"""Two longer words that begin with as many equal letters count as forms of one."""


@dataclass(frozen=True)
class Words:
    """The words of a text in order. `content` and `negators` are places among them: words that say something, words that deny."""

    words: tuple[str, ...]
    lower: tuple[str, ...]
    stems: tuple[str, ...]
    content: tuple[int, ...]
    negators: tuple[int, ...]

    @classmethod
    def of(cls, text: str) -> Words:
        """
        >>> Words.of("It was not Ada's ferry.").stems, Words.of("It was not Ada's ferry.").content
        (('it', 'was', 'not', 'ada', 'ferry'), (3, 4))
        """
        words = tuple(match[0] for match in _WORD.finditer(text))
        lower = tuple(word.lower().replace("’", "'") for word in words)
        denies = [word in NEGATORS or word.endswith("n't") for word in lower]
        return cls(
            words,
            lower,
            tuple(map(stem, lower)),
            tuple(at for at, word in enumerate(lower) if word not in FUNCTION_WORDS and not denies[at]),
            tuple(at for at, word in enumerate(lower) if denies[at]),
        )

    def is_number(self, at: int) -> bool:
        """Whether there is a digit in the word."""
        return any(character.isdigit() for character in self.words[at])

    def is_name(self, at: int) -> bool:
        """Whether the word has a capital letter and is not the first, which has one anyway."""
        return at > 0 and self.words[at][0].isupper()

    def neighbours(self, at: int, behind: int, ahead: int) -> set[str]:
        """The stems of the nearest content words in front of a place and after it."""
        before = [place for place in self.content if place < at][-behind:]
        after = [place for place in self.content if place > at][:ahead]
        return {self.stems[place] for place in (*before, *after)}


def stem(word: str) -> str:
    """A lower-case word without an ending that changes with grammar.

    >>> [stem(word) for word in ("sailed", "ferries", "ada's", "bus")]
    ['sail', 'ferri', 'ada', 'bus']
    """
    word = word.removesuffix("'s")
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST_STEM:
            return word.removesuffix(ending)
    return word


def alike(stem_a: str, stem_b: str) -> bool:
    """Whether two stems are forms of one word.

    >>> alike("observ", "observation"), alike("ada", "adam")
    (True, False)
    """
    long = min(len(stem_a), len(stem_b)) >= _SHARED_LETTERS
    return stem_a == stem_b or (long and stem_a[:_SHARED_LETTERS] == stem_b[:_SHARED_LETTERS])


def stands_in(stem_a: str, stems: Sequence[str] | set[str]) -> bool:
    """Whether a form of the word is among the stems."""
    return stem_a in stems or (len(stem_a) >= _SHARED_LETTERS and any(alike(stem_a, other) for other in stems))
