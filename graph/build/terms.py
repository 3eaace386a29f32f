"""The terms of passages: those of passages that came or went are counted, those of others moved, and what each weighs is worked out again.

Legend: see graph/store/data.py; F terms that were found in what came.
"""

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from graph.shared.types import Ints
from graph.store.columns.blocks import Entries
from graph.store.columns.merge import Merge
from graph.store.columns.moved import moved_block, moved_strings, whole
from graph.store.columns.numbers import moved_numbers
from graph.store.columns.strings import Strings
from graph.store.data import IndexData, TermColumns
from graph.text.bm25 import count_terms, term_weights


def derive_terms(base: IndexData, passages: Merge, texts: Sequence[str], last_texts: Sequence[str]) -> TermColumns:
    """All columns; `texts` are those of the passages now, `last_texts` those of the last generation."""
    lost = count_terms(last_texts[row] for row in passages.gone_G.tolist())
    passages_W = np.array(whole(base.term_passages_W))
    passages_W[_places(base.term_texts, lost.terms)] -= np.diff(lost.count_WP.indptr)

    counted = count_terms(texts[row] for row in passages.new_K.tolist())
    at_F, lengths_K = _places(base.term_texts, counted.terms), np.asarray(counted.count_WP.sum(axis=0), np.int64)
    known_F = _known(base.term_texts, at_F, counted.terms)
    merge, place_F = Merge.of_found(len(passages_W), np.flatnonzero(passages_W == 0), at_F, known_F)
    passages_W = np.array(merge.put_in(passages_W, np.zeros(len(merge.new_K), np.int64)))
    passages_W[place_F] += np.diff(counted.count_WP.indptr)
    unknown = (term for term, is_known in zip(counted.terms, known_F.tolist(), strict=True) if not is_known)
    new = counted.count_WP.tocoo()
    added = Entries(place_F[new.coords[0]], passages.new_K[new.coords[1]], new.data)
    terms_P = moved_numbers(base.passage_terms_P, passages, lengths_K)
    idf_W, norm_P = term_weights(passages_W, whole(terms_P))
    return TermColumns(
        term_texts=moved_strings(base.term_texts, merge, Strings.of(unknown)),
        term_count_WP=moved_block(base.term_count_WP, merge, passages, added),
        term_passages_W=passages_W,
        passage_terms_P=terms_P,
        term_idf_W=idf_W,
        term_norm_P=norm_P,
    )


def _places(sorted_terms: Strings, terms: Sequence[str]) -> Ints:
    """Where each of these terms stands, or would."""
    return np.array([bisect_left(sorted_terms, term) for term in terms], np.int64)


def _known(sorted_terms: Strings, at_F: Ints, terms: Sequence[str]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which of these terms stand where they would."""
    pairs = zip(at_F.tolist(), terms, strict=True)
    return np.array([at < len(sorted_terms) and sorted_terms[at] == term for at, term in pairs], bool)
