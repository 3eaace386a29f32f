"""A question's words, function words left out, and in which texts they stand, in any form.

Legend: W words, C passages.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np

from graph.index.index import Index
from graph.shared.types import Floats, Ints
from graph.store.columns.moved import cells
from graph.store.columns.strings import Strings
from graph.text.bm25 import idf, terms_of
from graph.verify.vocabulary import FUNCTION_WORDS
from graph.verify.words import form_of

PREFIX = 3
"""Letters that all forms of a word have in common at least."""


class AskedWords:
    """The words with their weights, idf; `named_W` are those of names that call documents, `unnamed_W` the weights of the others."""

    def __init__(self, index: Index, question: str, names: Sequence[str]) -> None:
        data = index.data
        words = [term for term in terms_of(question) if term not in FUNCTION_WORDS]
        self._rows_of = {form_of(word): rows_of_form(data.term_texts, word) for word in words}
        self._place_of = {form: place for place, form in enumerate(self._rows_of)}
        self._count_WP = data.term_count_WP
        unknown = float(idf(np.array([0]), len(data.passage_ids))[0])
        weights = [float(data.term_idf_W[rows].min()) if rows else unknown for rows in self._rows_of.values()]
        in_names = {form_of(term) for name in names for term in terms_of(name)}
        self.weight_W = np.array(weights, np.float32)
        self.named_W = np.array([form in in_names for form in self._rows_of], np.bool_)
        self.unnamed_W = np.where(self.named_W, 0, self.weight_W)

    def in_passages(self, rows_C: Ints) -> Floats:
        """1 where a passage has a word: [W, C]."""
        has_WC = np.zeros((len(self._rows_of), len(rows_C)), np.float32)
        for place, rows in enumerate(self._rows_of.values()):
            has_WC[place] = (cells(self._count_WP, np.array(rows, np.int64), rows_C) > 0).any(axis=0)
        return has_WC

    def in_texts(self, texts: Sequence[str]) -> Floats:
        """1 where a text has a word: [texts, W]."""
        found = np.zeros((len(texts), len(self._place_of)), np.float32)
        for row, text in enumerate(texts):
            forms = map(form_of, terms_of(text))
            found[row, [self._place_of[form] for form in forms if form in self._place_of]] = 1
        return found

    def share_asked(self, texts: Sequence[str]) -> Floats:
        """The share of each text's words that stand in the question: [texts]."""
        forms = [[form_of(term) for term in terms_of(text)] for text in texts]
        found = [sum(f in self._place_of for f in each) / len(each) if each else 0 for each in forms]
        return np.array(found, np.float32)


def rows_of_form(terms: Strings | Sequence[str], word: str) -> list[int]:
    """The rows of the terms that are forms of a word, among `terms`, which are sorted.

    >>> rows_of_form(["founder", "founders", "fountain"], "founders")
    [0, 1]
    """
    start, form = word[:PREFIX], form_of(word)
    low = bisect_left(terms, start)
    high = bisect_right(terms, start, low, key=lambda each: each[:PREFIX])
    return [row for row in range(low, high) if form_of(terms[row]) == form]


def share(weight_W: Floats, has_WX: Floats) -> Floats:
    """Σ weight of the terms that each has / Σ weight of all; 0 where there are none: [X].

    >>> share(np.array([3.0, 1.0]), np.array([[1, 0], [0, 1]])).tolist()
    [0.75, 0.25]
    """
    return np.asarray(weight_W @ has_WX / max(float(weight_W.sum()), 1e-6), np.float32)
