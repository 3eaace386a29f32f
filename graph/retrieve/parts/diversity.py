"""Diversity of statements (HLG §4.3.1): of two statements with the same meaning and words, only the better one remains.

The published method drops stop words and folds numbers, so that "did acquire" equals "did not acquire" and −3.5 % equals −3.7 %. Here
all words count: two statements are duplicates only if their distinctive words (numbers, negations, names, single letters, signs) are equal and
in the same order, and the cosine of their TF-IDF vectors over words and pairs of words is above 1 − τ.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from graph.types import Ints

THRESHOLD = 0.005
"""τ: two statements with the same distinctive words both remain if the distance of their vectors (1 − cosine) is at least this."""
SIGN = r"!=|[^\w\s.,:;?!…'\"`‘’“”„«»()\[\]{}/–—、，。؟،؛।-]"
"""A sign: any character that belongs neither to a word nor to punctuation, such as ≥, +, or a vowel sign that `re` does not count as part of a word."""
_NUMBER = r"(?:(?<![\w%°])[-–−+])?[$€£¥]?(?:(?<!\w)\.)?\d+(?:[.,:/]\d+)*(?:\s?[%°])?"
_TOKEN = re.compile(rf"{_NUMBER}|[^\W\d_]+(?:['’][^\W\d_]+)?|\w+|{SIGN}|/")
"""A number, a word, a sign, or a slash."""
BLOCK_ROWS = 256
"""At most this many texts at a time are compared with the others that have the same distinctive words."""
_NEGATIONS = frozenset(
    ["no", "not", "never", "none", "nor", "neither", "nobody", "nothing", "without", "cannot", "hardly", "unlike"]
)


def diverse_rows(texts: Sequence[str], threshold: float = THRESHOLD) -> Ints:
    """The rows of `texts` (best first) without duplicates of earlier ones: int64, ascending."""
    rows_with: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for row, text in enumerate(texts):
        rows_with[distinctive_words(text)].append(row)
    if len(rows_with) == len(texts):
        return np.arange(len(texts))
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectors = TfidfVectorizer(analyzer=_words_and_pairs).fit_transform(texts)
    rows: list[int] = []
    for same_words in rows_with.values():
        if len(same_words) == 1:
            rows += same_words
            continue
        same, distinct = vectors[same_words], list[int]()
        for first in range(0, len(same_words), BLOCK_ROWS):
            similarity = (same[first : first + BLOCK_ROWS] @ same.T).toarray()
            for number, to_others in enumerate(similarity, first):
                if not (to_others[distinct] > 1 - threshold).any():
                    distinct.append(number)
        rows += [same_words[number] for number in distinct]
    return np.array(sorted(rows), np.int64)


def distinctive_words(text: str) -> tuple[str, ...]:
    """The words of a text that a duplicate must have in the same order: negations, single letters, and everything that is not in lower case
    (numbers, names, signs, words of scripts without case).

    >>> distinctive_words("Vitamin C did not fall by −3.5 % in Tarn.")
    ('Vitamin', 'C', 'not', '−3.5 %', 'Tarn')
    """
    return tuple(token for token in _TOKEN.findall(text) if _is_distinctive(token))


def _is_distinctive(token: str) -> bool:
    folded = token.casefold()
    return not token.islower() or len(token) == 1 or folded in _NEGATIONS or folded.endswith(("n't", "n’t"))


def _words_and_pairs(text: str) -> list[str]:
    words = [token.casefold() for token in _TOKEN.findall(text)] or [text]
    return words + [f"{first} {second}" for first, second in pairwise(words)]
