"""What a sentence and the passages that it rests on have in common, as numbers: no encoder, no model, less than a millisecond.

Each feature shows one way in which a sentence can say what its source does not: words, names or numbers that are missing, a negation
too many or too few, an opposite, an order or a neighbourhood of words that the source does not have.

Legend: N sentences of the passages, F features.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from graph.extract.units import split_units
from graph.shared.types import Floats
from graph.verify.alignment import Source, align, asides_last, best_source
from graph.verify.vocabulary import OPPOSITES
from graph.verify.words import Words, form

_NEAR, _SLACK = 4, 3
"""Neighbours are content words so many places away; in the source they may be so many places further."""


@dataclass(frozen=True)
class Ground:
    """Passages to read sentences against: their sentences, the words of each, those of their titles, and the `form` of all of these."""

    sentences: tuple[str, ...]
    words_N: tuple[Words, ...]
    titles: tuple[frozenset[str], ...]
    forms: frozenset[str]
    text: str

    @classmethod
    def of(cls, passages: Iterable[tuple[str, str]]) -> Ground:
        """`passages` are titles and texts."""
        given = list(passages)
        sentences = tuple(unit.text for _, text in given for unit in split_units(text))
        words_N = tuple(map(Words.of, sentences))
        titles = tuple(Words.of(title).stem_set for title, _ in given)
        forms = frozenset(map(form, set().union(*titles, *(words.stem_set for words in words_N))))
        return cls(sentences, words_N, titles, forms, " ".join(text for _, text in given).casefold())

    @classmethod
    def joined(cls, parts: Iterable[Ground]) -> Ground:
        """Several as one."""
        of = list(parts)
        return cls(
            tuple(sentence for part in of for sentence in part.sentences),
            tuple(words for part in of for words in part.words_N),
            tuple(title for part in of for title in part.titles),
            frozenset().union(*(part.forms for part in of)),
            " ".join(part.text for part in of),
        )


def claim_features(claim: str, ground: Ground) -> Floats:
    """The FEATURES of a sentence: float32[F]."""
    return np.array([float(value) for value in _values(claim, ground).values()], np.float32)


def missing_words(claim: str, ground: Ground) -> tuple[str, ...]:
    """The names and numbers of a sentence that stand nowhere in the passages or their titles, as written, each once."""
    words = Words.of(claim)
    named = (at for at in words.content if words.is_name(at) or words.is_number(at))
    return tuple(dict.fromkeys(words.words[at] for at in named if form(words.stems[at]) not in ground.forms))


def _values(claim: str, ground: Ground) -> Mapping[str, float]:
    words = Words.of(asides_last(claim))
    titled: set[str] = set().union(*ground.titles)
    source = best_source(words, ground.sentences, ground.words_N, titled)
    # A title that the source does not name in full, or names and then refers to, stands for its pronoun, and has no place there.
    there = () if source.joint else (title for title in ground.titles if title <= source.words.stem_set)
    named = titled - set().union(*there)
    aligned = {at: place for at, place in align(words, source.words).items() if words.stems[at] not in named}
    missing = [at for at in words.content if at not in aligned and words.stems[at] not in titled]
    unknown = [at for at in missing if form(words.stems[at]) not in ground.forms]
    return {
        "words": len(words.words),
        "sentences": len(ground.sentences),
        "verbatim": claim.casefold().strip(" .") in ground.text,
        **dict(_missing(words, missing, "source")),
        **dict(_missing(words, unknown, "passages")),
        **dict(_negations(words, source.words)),
        **dict(_opposites(words, source.words)),
        **dict(_order(words, source, aligned, missing, titled)),
    }


def _missing(words: Words, places: Sequence[int], where: str) -> Iterator[tuple[str, float]]:
    """Words that are not there, and how many of them are names and numbers."""
    yield f"missing in {where}", len(places)
    yield f"share missing in {where}", len(places) / max(len(words.content), 1)
    yield f"names missing in {where}", sum(words.is_name(at) for at in places)
    yield f"numbers missing in {where}", sum(words.is_number(at) for at in places)


def _negations(words: Words, source: Words) -> Iterator[tuple[str, float]]:
    """Negators of both, and those whose neighbours are in the other without one."""

    def denied(of: Words) -> list[set[str]]:
        return [of.neighbours(at, 1, 2) for at in of.negators]

    own, theirs = denied(words), denied(source)
    all_own, all_theirs = set().union(*own), set().union(*theirs)
    yield "negations", len(own)
    yield "negations of source", len(theirs)
    yield "negations more", len(own) - len(theirs)
    yield "negations not in source", sum(not (near & all_theirs) for near in own)
    yield (
        "negations left out",
        sum(bool(near) and len(near & words.stem_set) >= min(2, len(near)) and not (near & all_own) for near in theirs),
    )


def _opposites(words: Words, source: Words) -> Iterator[tuple[str, float]]:
    """Words whose opposite stands in the source in their place, and words with opposites that the source lacks."""
    there = set(source.lower)
    turned = [word for word in words.lower if word in OPPOSITES and word not in there]
    yield "opposites", sum(bool(OPPOSITES[word] & there) for word in turned)
    yield "turning words missing", len(turned)


def _order(
    words: Words, source: Source, aligned: Mapping[int, int], missing: Sequence[int], titles: Collection[str]
) -> Iterator[tuple[str, float]]:
    """Whether what is shared follows in the same order and stands beside the same words."""
    places = [aligned[at] for at in words.content if at in aligned]
    names = [at for at in words.content if words.is_name(at) and (at in aligned or words.stems[at] not in titles)]
    numbers = [at for at in words.content if words.is_number(at)]
    shared_names = [aligned[at] for at in names if at in aligned]
    told = aligned.keys() | set(missing)
    pairs = [(a, b) for a, b in pairwise(words.content) if {a, b} <= told and not _are_apart(source, aligned, a, b)]
    follow = sum(a in aligned and b in aligned and 0 < aligned[b] - aligned[a] <= b - a + _SLACK - 1 for a, b in pairs)
    between = [
        at for side in source.sides(places) for at in source.words.content if side and min(side) < at < max(side)
    ]
    spoken = {*words.stems, *source.aside}
    yield "in order", sum(map(_rising, source.sides(places))) / max(len(places), 1)
    yield "pairs kept", follow / max(len(pairs), 1)
    yield "names kept", len(shared_names) / len(names) if names else any(map(words.is_name, words.content))
    yield "names turned round", max(map(_turned, source.sides(shared_names)))
    yield "names among their neighbours", _beside(words, source, aligned, names)
    yield "numbers among their neighbours", _beside(words, source, aligned, numbers)
    yield "missing at the end", sum(at in missing for at in words.content[-2:])
    yield "longest run missing", _longest_run(words.content, set(missing))
    yield (
        "names of source left out",
        sum(
            (source.words.is_name(at) or source.words.is_number(at)) and source.words.stems[at] not in spoken
            for at in between
        ),
    )
    yield "words of source", len(source.words.words)
    yield "words added by a second sentence", source.added
    yield "second sentence refers back", source.joint > 0


def _rising(places: Sequence[int]) -> int:
    """Length of the longest rising part of a sequence.

    >>> _rising([3, 1, 2, 5])
    3
    """
    ends: list[int] = []
    for place in places:
        at = bisect_left(ends, place)
        ends[at : at + 1] = [place]
    return len(ends)


def _turned(places: Sequence[int]) -> float:
    """The share of pairs that come the other way round.

    >>> _turned([4, 1, 9])
    0.3333333333333333
    """
    pairs = len(places) * (len(places) - 1) / 2
    return sum(a > b for at, a in enumerate(places) for b in places[at + 1 :]) / max(pairs, 1)


def _are_apart(source: Source, aligned: Mapping[int, int], one: int, other: int) -> bool:
    """Whether two words of a claim stand on different sides of the source."""
    return one in aligned and other in aligned and source.are_apart(aligned[one], aligned[other])


def _beside(words: Words, source: Source, aligned: Mapping[int, int], chosen: Sequence[int]) -> float:
    """The least share of its neighbours that a chosen word has near it in the source too; 1 where none can be told."""
    shares = []
    for at in chosen:
        near = [
            other
            for other in aligned
            if other != at
            and abs(other - at) <= _NEAR
            and not (words.is_name(other) and words.is_name(at))
            and not _are_apart(source, aligned, at, other)
        ]
        if at in aligned and near:
            found = [place for place, stem in enumerate(source.words.stems) if stem == words.stems[at]] or [aligned[at]]
            shares.append(
                max(sum(abs(aligned[other] - place) <= abs(other - at) + _SLACK for other in near) for place in found)
                / len(near)
            )
    return min(shares, default=1.0)


def _longest_run(places: Sequence[int], marked: set[int]) -> int:
    longest = run = 0
    for place in places:
        run = run + 1 if place in marked else 0
        longest = max(longest, run)
    return longest


FEATURES = tuple(_values("", Ground.of([])))
