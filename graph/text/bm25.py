"""BM25 by terms: texts to terms, for passages and questions alike, and the eager scores that the index keeps.

At indexing, bm25s (Lù 2024, arXiv:2407.03618) works out what every term adds to the score of every passage that has it; at query
time only the question is cut into terms, and rows are summed (graph/retrieve/modes/lexical.py).

Legend: P passages, W terms.
"""

import re
import unicodedata
from collections.abc import Sequence
from itertools import chain

import numpy as np
import scipy.sparse as sp

from graph.shared.types import Floats
from graph.text.scripts import MARKS, UNSPACED

K1, B = 1.5, 0.75
_TERM = re.compile(rf"(?P<unspaced>[{UNSPACED}]+)|(?:(?![{UNSPACED}])[^\W_]|[{MARKS}])+")


def terms_of(text: str) -> list[str]:
    """The terms of a text in order: words and numbers, case and width folded; scripts without spaces give character pairs.

    >>> terms_of("The Lantern, built in 1911"), terms_of("東京都の")
    (['the', 'lantern', 'built', 'in', '1911'], ['東京', '京都', '都の'])
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return list(chain.from_iterable(_cut(match) for match in _TERM.finditer(folded)))


def bm25_scores(texts: Sequence[str]) -> tuple[list[str], sp.csr_array]:
    """All terms of P texts, sorted, and what each adds to the BM25 score of each text (Lucene's form): CSR[W, P]."""
    number_of: dict[str, int] = {}
    numbers = [
        np.array([number_of.setdefault(term, len(number_of)) for term in terms_of(text)], np.int32) for text in texts
    ]
    terms = sorted(number_of)
    if not terms:
        return [], sp.csr_array((0, len(texts)), dtype=np.float32)
    from bm25s import BM25

    row_of_number = np.empty(len(terms), np.int32)
    row_of_number[[number_of[term] for term in terms]] = np.arange(len(terms), dtype=np.int32)
    rows = [row_of_number[each] for each in numbers]
    made = BM25(k1=K1, b=B, method="lucene").build_index_from_ids(list(range(len(terms))), rows, show_progress=False)
    return terms, sp.csr_array((made["data"], made["indices"], made["indptr"]), shape=(len(terms), len(texts)))


def sum_of_terms(term_passage_WP: sp.csr_array, rows: Sequence[int]) -> Floats:
    """BM25 of every passage for the terms in `rows`, a repeated one counted as often: float32[P]."""
    scores_P = np.zeros(term_passage_WP.shape[1], np.float32)
    for row in rows:
        entries = slice(*term_passage_WP.indptr[row : row + 2])
        scores_P[term_passage_WP.indices[entries]] += term_passage_WP.data[entries]
    return scores_P


def _cut(match: re.Match[str]) -> list[str]:
    word = match[0]
    if match["unspaced"] is None or len(word) == 1:
        return [word]
    return [word[start : start + 2] for start in range(len(word) - 1)]
