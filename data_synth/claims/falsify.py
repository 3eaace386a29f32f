"""Sentences with one change that their passage does not support: another name or number, a toggled negation, swapped roles, or an opposite."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from graph.extract.entities import find_entities
from graph.text.word_forms import OPPOSITES

_NUMBER = re.compile(r"\d[\d,.]*\d|\d")
_NEGATION = re.compile(r"\b(?:not|never|no) ")
_AUXILIARY = re.compile(r"\b(?:is|was|were|are|has|have|had|can|could|will|would|may|did|does|do|should)\b(?! not)")
_FROM_PASSAGE = 0.5
"""Probability that a name or number is replaced by one from the same passage, if there is a choice: such a change is harder to detect."""
_SAMPLED_NAMES = 40
"""Number of names of other passages that are sampled to find one of the same shape."""


@dataclass(frozen=True)
class Surroundings:
    """The surroundings of a sentence: the text of its passage, the names in that text, and names in other passages."""

    passage: str
    names: Sequence[str]
    names_elsewhere: Sequence[str]


def other_name(sentence: str, around: Surroundings, rng: random.Random) -> str | None:
    """The sentence with a name replaced by another one from its passage, or from another passage; None without a name or a replacement."""
    names = [name for name in names_in(sentence) if not _NUMBER.fullmatch(name)]
    if not names:
        return None
    name = rng.choice(names)
    distinct = [other for other in around.names if other not in sentence and other not in name and name not in other]
    near = [other for other in distinct if shape(other)[:2] == shape(name)[:2]]
    sampled = rng.sample(around.names_elsewhere, min(_SAMPLED_NAMES, len(around.names_elsewhere)))
    far = [other for other in sampled if other not in around.passage and shape(other) == shape(name)]
    candidates = near if near and rng.random() < _FROM_PASSAGE else far or near
    return sentence.replace(name, rng.choice(candidates)) if candidates else None


def other_number(sentence: str, around: Surroundings, rng: random.Random) -> str | None:
    """The sentence with a number replaced by another one from its passage, or with one of its last two digits changed; None without a number."""
    numbers = list(_NUMBER.finditer(sentence))
    if not numbers:
        return None
    match = rng.choice(numbers)
    near = [other for other in _NUMBER.findall(around.passage) if len(other) == len(match[0]) and other not in sentence]
    new = rng.choice(near) if near and rng.random() < _FROM_PASSAGE else _other_digit(match[0], rng)
    return sentence[: match.start()] + new + sentence[match.end() :]


def toggled_negation(sentence: str, around: Surroundings, rng: random.Random) -> str | None:
    """The sentence without its negation, or negated; None if it has neither a negation nor an auxiliary verb."""
    if _NEGATION.search(sentence):
        return _NEGATION.sub("", sentence, count=1)
    verbs = list(_AUXILIARY.finditer(sentence))[:2]
    if not verbs:
        return None
    end = rng.choice(verbs).end()
    return sentence[:end] + rng.choice((" not", " not", " never")) + sentence[end:]


def swapped_roles(sentence: str, around: Surroundings, rng: random.Random) -> str | None:
    """The sentence with two of its names swapped: each occurs once, neither contains the other, and both or neither have digits; None without such names."""
    names = [name for name in names_in(sentence) if sentence.count(name) == 1]
    pairs = [
        (a, b)
        for a, b in permutations(names, 2)
        if sentence.index(a) < sentence.index(b) and a not in b and b not in a and shape(a)[0] == shape(b)[0]
    ]
    if not pairs:
        return None
    first, second = rng.choice(pairs)
    other = {first: second, second: first}
    return re.sub("|".join(map(re.escape, other)), lambda match: other[match[0]], sentence)


def opposite_word(sentence: str, around: Surroundings, rng: random.Random) -> str | None:
    """The sentence with a word replaced by its opposite; None if no word has an opposite."""
    words = [word for word in re.findall(r"\b[a-z]+\b", sentence) if word in OPPOSITES]
    if not words:
        return None
    word = rng.choice(words)
    return re.sub(rf"\b{word}\b", rng.choice(sorted(OPPOSITES[word])), sentence, count=1)


CHANGES: Mapping[str, Callable[[str, Surroundings, random.Random], str | None]] = {
    "name": other_name,
    "number": other_number,
    "negation": toggled_negation,
    "roles": swapped_roles,
    "opposite": opposite_word,
}


def falsify(sentence: str, around: Surroundings, rng: random.Random) -> tuple[str, str] | None:
    """The falsified sentence and the kind of change; None if no change yields a different sentence that is not in the passage.

    >>> falsify("It burned in 1911.", Surroundings("It burned in 1911.", (), ()), random.Random(0))
    ('It burned in 1919.', 'number')
    """
    for kind in rng.sample(sorted(CHANGES), len(CHANGES)):
        broken = CHANGES[kind](sentence, around, rng)
        if broken is not None and broken != sentence and broken not in around.passage:
            return broken, kind
    return None


def names_in(text: str) -> list[str]:
    """Names, dates and quantities as written in the text, including a one-word name at its start."""
    return [name for name in find_entities(f"x {text}") if name in text]


def shape(name: str, max_words: int = 3) -> tuple[bool, bool, int]:
    """The shape of a name: whether it has digits, whether it starts with a capital, and its number of words, at most `max_words`.

    >>> shape("Ada Marlow") == shape("Port Ellery"), shape("14 May 1911") == shape("Ada")
    (True, False)
    """
    return bool(_NUMBER.search(name)), name[:1].isupper(), min(len(name.split()), max_words)


def _other_digit(number: str, rng: random.Random) -> str:
    position = rng.choice([i for i, character in enumerate(number) if character.isdigit()][-2:])
    digits = [digit for digit in "123456789" if digit != number[position]]
    return number[:position] + rng.choice(digits) + number[position + 1 :]
