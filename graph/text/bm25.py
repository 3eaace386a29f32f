"""BM25: the terms of a text (passage or question), and the counts from which scores are computed at query time.

The counts of a text do not depend on other texts, so an edited index counts only its new texts; term weights and length normalisation
depend on all counts. The variant is Lucene's, as in bm25s (Lù 2024, arXiv:2407.03618).

Legend: P texts (passages), W terms, X occurrences of terms (in `bm25`, pairs of a term and a text).
"""

import re
import unicodedata
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graph.text.word_forms import FUNCTION_WORDS, MARKS, UNSPACED, composed
from graph.types import Floats, Ints

K1, B = 1.5, 0.75
_LETTERS = re.compile(r"[^\W_]+")
_OTHER = re.compile(f"[{UNSPACED}{MARKS}]")
_TERM = re.compile(rf"(?P<unspaced>[{UNSPACED}]+)|(?:(?![{UNSPACED}])[^\W_]|[{MARKS}])+")


def terms_of(text: str) -> list[str]:
    """The terms of a text in order: words and numbers, folded in case and width; scripts without spaces yield character pairs.

    >>> terms_of("The Lantern, built in 1911"), terms_of("東京都の")
    (['the', 'lantern', 'built', 'in', '1911'], ['東京', '京都', '都の'])
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", composed(text)).casefold())
    if _OTHER.search(folded) is None:
        return _LETTERS.findall(folded)
    return list(chain.from_iterable(_cut(match) for match in _TERM.finditer(folded)))


def content_terms(text: str) -> list[str]:
    """The terms of a text in order, without function words."""
    return [term for term in terms_of(text) if term not in FUNCTION_WORDS]


@dataclass(frozen=True)
class TermCounts:
    """How often each of W terms (sorted, each in at least one text) occurs in each of P texts: float32 CSR[W, P]."""

    terms: list[str]
    count_WP: sp.csr_array


def count_terms(texts: Iterable[str]) -> TermCounts:
    """Count the terms of P texts, which are read one by one.

    >>> counts = count_terms(["a port, the port", "the isle"])
    >>> counts.terms, counts.count_WP.toarray().astype(int).tolist()
    (['a', 'isle', 'port', 'the'], [[1, 0], [0, 1], [2, 0], [1, 1]])
    """
    number_of: dict[str, int] = {}
    lengths, numbers = array("q"), array("i")
    for text in texts:
        terms_in_text = terms_of(text)
        numbers.extend(number_of.setdefault(term, len(number_of)) for term in terms_in_text)
        lengths.append(len(terms_in_text))
    terms = sorted(number_of)
    row_of = np.empty(len(terms), np.int32)
    row_of[[number_of[term] for term in terms]] = np.arange(len(terms))
    row_X = row_of[np.frombuffer(numbers, np.int32)]
    text_X = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    ones_X = np.ones(len(row_X), np.float32)
    return TermCounts(terms, sp.csr_array(sp.coo_array((ones_X, (row_X, text_X)), shape=(len(terms), len(lengths)))))


def term_weights(texts_W: Ints, length_P: Ints) -> tuple[Floats, NDArray[np.float64]]:
    """BM25's collection statistics: `idf` of each term, from its document frequency, and k1(1 − b + b·|d|/mean) of each text, from its length."""
    return idf(texts_W, len(length_P)), K1 * ((1 - B) + B * length_P / (length_P.mean() if length_P.any() else 1))


def idf(texts_W: Ints, texts: int) -> Floats:
    """ln(1 + (P − n + ½)/(n + ½)) of terms that occur in n of P `texts`: float32[W].

    >>> [f"{weight:.2f}" for weight in idf(np.array([0, 3, 6]), 6)]
    ['2.64', '0.69', '0.07']
    """
    return np.asarray(np.log(1 + (texts - texts_W + 0.5) / (texts_W + 0.5)), np.float32)


def bm25(count_X: Floats, idf_X: Floats, norm_X: NDArray[np.float64]) -> Floats:
    """A term's contribution to a text's score: idf · f/(f + norm), with idf and norm from `term_weights`; 0 if the text does not contain the term.

    >>> bm25(np.array([0.0, 2.0]), np.array([0.5, 0.5]), np.array([1.5, 3.0])).tolist()
    [0.0, 0.20000000298023224]
    """
    return (idf_X * (count_X / (norm_X + count_X))).astype(np.float32)


def _cut(match: re.Match[str]) -> list[str]:
    word = match[0]
    if match["unspaced"] is None or len(word) == 1:
        return [word]
    return [word[start : start + 2] for start in range(len(word) - 1)]
