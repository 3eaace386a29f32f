"""The overlap of a sentence's wording with passages: the shares of its stems, of its pairs of adjacent stems and of its
pairs of content stems that occur in the passages.

Terms are those of BM25; a stem is the part that all forms of a term share; content stems are the stems of terms that are not
function words. The share of n-grams found in a source is ROUGE's precision (Lin 2004); pairs with a gap are
skip-bigrams (ROUGE-S)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from graph.text.bm25 import terms_of
from graph.text.word_forms import FUNCTION_WORDS, form_of

OVERLAP = ("stems found", "stem pairs found", "near pairs found")
NEAR_DISTANCE = 3
"""Two content stems of a passage are near each other if they are at most this many content stems apart."""
Pair = tuple[str, str]


@dataclass(frozen=True)
class Wording:
    """The stems of a passage and its title, its pairs of adjacent stems, and its pairs of content stems near each other, in order."""

    stems: frozenset[str]
    pairs: frozenset[Pair]
    near: frozenset[Pair]

    @classmethod
    def of(cls, title: str, text: str) -> Wording:
        """The wording of a passage; no pair spans title and text."""
        stems, pairs, near = set[str](), set[Pair](), set[Pair]()
        for part in filter(None, (title, text)):
            terms = terms_of(part)
            part_stems = [form_of(term) for term in terms]
            content = [form_of(term) for term in terms if term not in FUNCTION_WORDS]
            stems.update(part_stems)
            pairs.update(pairwise(part_stems))
            for gap in range(1, NEAR_DISTANCE + 1):
                near.update(zip(content, content[gap:], strict=False))
        return cls(frozenset(stems), frozenset(pairs), frozenset(near))


def overlaps(claim: str, passages: Sequence[Wording]) -> tuple[float, float, float]:
    """OVERLAP of a sentence with passages: three shares from 0 to 1, of the stems and pairs that occur in any passage.

    * stems found: the share of its distinct terms (function words excluded) whose stem occurs; 1 if it has no such terms;
    * stem pairs found: the share of its pairs of adjacent stems that are also adjacent in a passage; 0 if it has no pair;
    * near pairs found: the share of its pairs of adjacent content stems that occur at most NEAR_DISTANCE content stems
      apart, in either order; 0 if it has no pair.

    >>> overlaps("A boat left Quill.", [Wording.of("", "The boats left Tarn.")])
    (0.6666666666666666, 0.3333333333333333, 0.5)
    """
    terms = terms_of(claim)
    stems = [form_of(term) for term in terms]
    content = [form_of(term) for term in terms if term not in FUNCTION_WORDS]
    distinct = [form_of(term) for term in dict.fromkeys(terms) if term not in FUNCTION_WORDS]
    present = sum(any(stem in passage.stems for passage in passages) for stem in distinct)
    adjacent = sum(any(pair in passage.pairs for passage in passages) for pair in pairwise(stems))
    near = sum(
        any((a, b) in passage.near or (b, a) in passage.near for passage in passages) for a, b in pairwise(content)
    )
    return (
        present / len(distinct) if distinct else 1.0,
        adjacent / max(len(stems) - 1, 1),
        near / max(len(content) - 1, 1),
    )
