"""Diversity of statements (HLG §4.3.1): of two that say the same in the same words, only the better one is kept.

As published, stop words go and numbers are folded, so that "did acquire" equals "did not acquire" and −3.5 % equals −3.7 %. Here
no word goes: two statements are twins only if the words that tell them apart (numbers, negations, names, single letters) are
the same and in the same order, and the cosine of their TF-IDF vectors over words and pairs of words is above 1 − τ.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from graph.types import Ints

THRESHOLD = 0.005
"""τ: how far two statements must be apart to be kept both."""
_TOKEN = re.compile(r"[-−+]?[$€£¥]?\d+(?:[.,:/]\d+)*(?:\s?[%°])?|[^\W\d_]+(?:['’][^\W\d_]+)?|\w+")
_NEGATIONS = frozenset(
    ["no", "not", "never", "none", "nor", "neither", "nobody", "nothing", "without", "cannot", "hardly", "unlike"]
)


def diverse_rows(texts: Sequence[str], threshold: float = THRESHOLD) -> Ints:
    """Places in `texts` (best first) of those kept: int64, ascending."""
    telling = [telling_words(text) for text in texts]
    if len(set(telling)) == len(telling):
        return np.arange(len(texts))
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectors = TfidfVectorizer(analyzer=_words_and_pairs).fit_transform(texts)
    likeness = (vectors @ vectors.T).toarray()
    kept: list[int] = []
    for place in range(len(texts)):
        twins = (other for other in kept if likeness[place, other] > 1 - threshold and telling[place] == telling[other])
        if next(twins, None) is None:
            kept.append(place)
    return np.array(kept, np.int64)


def telling_words(text: str) -> tuple[str, ...]:
    """The words of a text that a twin must have in the same order: numbers, negations, capitalised words and single letters.

    >>> telling_words("Vitamin C did not fall by −3.5 % in Tarn.")
    ('Vitamin', 'C', 'not', '−3.5 %', 'Tarn')
    """
    return tuple(token for token in _TOKEN.findall(text) if _tells(token))


def _tells(token: str) -> bool:
    folded = token.casefold()
    return not token.islower() or len(token) == 1 or folded in _NEGATIONS or folded.endswith(("n't", "n’t"))


def _words_and_pairs(text: str) -> list[str]:
    words = [token.casefold() for token in _TOKEN.findall(text)] or [text]
    return words + [f"{first} {second}" for first, second in pairwise(words)]
