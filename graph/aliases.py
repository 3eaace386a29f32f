"""Spellings of one name: who "J. Smith" is, when the index knows one John Smith and nobody else with that initial.

Found when the arrays are derived, from the names alone, so that it does not matter in which order documents came; a second
matching name makes the initial ambiguous, and the alias goes.
"""

import re
from collections import defaultdict
from collections.abc import Sequence

_SHORT = re.compile(r"(?P<initials>(?:[^\W\d_]\.[ ]?)+)(?P<surname>[^\W\d_][^\d_.]+)")
_WORD = re.compile(r"[^\W\d_][^\W\d_'’-]+")
MAX_GIVEN_NAMES = 3


def full_names(keys: Sequence[str]) -> list[tuple[int, int]]:
    """(row, row of the full name) for every key of initials and a surname that exactly one full name fits, by row.

    >>> full_names(["j. smith", "john smith", "j. r. smith", "ann smith"])
    [(0, 1)]
    """
    by_surname: dict[str, list[tuple[int, list[str]]]] = defaultdict(list)
    for row, key in enumerate(keys):
        words = key.split()
        if 2 <= len(words) <= 1 + MAX_GIVEN_NAMES and all(map(_WORD.fullmatch, words)):
            by_surname[words[-1]].append((row, words[:-1]))
    pairs = []
    for row, key in enumerate(keys):
        short = _SHORT.fullmatch(key)
        if short is None:
            continue
        initials = [letter for letter in short["initials"] if letter.isalpha()]
        fitting = [full for full, given in by_surname[short["surname"]] if _fits(initials, given)]
        if len(fitting) == 1:
            pairs.append((row, fitting[0]))
    return pairs


def _fits(initials: Sequence[str], given: Sequence[str]) -> bool:
    return len(initials) <= len(given) and all(word[0] == letter for letter, word in zip(initials, given, strict=False))
