"""Scores by the question's words: BM25, and its combination with normalised similarity, without a fixed scale for either.

Legend: P passages, W terms of a question.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from graph.index.index import Index
from graph.retrieve.parts.ranking import top_rows
from graph.store.columns.moved import cells
from graph.text.bm25 import bm25, terms_of
from graph.text.word_forms import FUNCTION_WORDS
from graph.types import Floats, Ints

TERMS_SHOWN = 8


def known_terms(index: Index, text: str) -> list[int]:
    """The rows of the text's terms that are in the index, in order, with repetitions."""
    return [row for term in terms_of(text) if (row := row_of_term(index, term)) is not None]


def row_of_term(index: Index, term: str) -> int | None:
    """The row of a term; None if no passage contains it."""
    texts = index.data.term_texts
    row = bisect_left(texts, term)
    return row if row < len(texts) and texts[row] == term else None


def unnamed_terms(index: Index, text: str, names: Iterable[str]) -> list[int]:
    """`known_terms` without the terms of `names`: those already raise the scores of the documents that they name."""
    named = {term for name in names for term in terms_of(name)}
    return [row for row in known_terms(index, text) if index.data.term_texts[row] not in named]


def word_scores(index: Index, terms: list[int]) -> Floats:
    """BM25 of every passage for terms (rows); repeated terms count repeatedly: float32[P]."""
    return index.term_scores.sum(terms)


@dataclass(frozen=True)
class Scale:
    """The distribution among passages: median similarity m, root mean square s of similarity − m where this is positive, and median BM25."""

    middle: float
    spread: float
    median_bm25: float


def scale_of(similarity_P: Floats, words_P: Floats) -> Scale:
    """The scale of all passages, or of a sample of them."""
    if len(similarity_P) == 0:
        return Scale(0, 0, 0)
    middle = float(np.median(similarity_P))
    above_P = similarity_P[similarity_P > middle] - middle
    spread = float(np.sqrt(np.square(above_P).mean())) if len(above_P) else 0
    return Scale(middle, spread, float(np.median(words_P)))


def with_words(similarity_P: Floats, words_P: Floats, scale: Scale | None = None) -> Floats:
    """Normalised similarity raised by BM25, on the scale of these passages, or on a given `scale` of a larger set: float32[P].

    Similarity and BM25 are converted to nats. Similarity: z|z|/2 of z = (similarity − m) / s, a normal variable's negative log-likelihood with the sign of z;
    m is the median and s the root mean square of the excess over it, so that the few relevant passages are compared with the bulk. Words: BM25, an
    estimate of log-odds (Robertson & Zaragoza 2009), less its median, but at least 0. Their sum t is converted back: m + s·sign(t)·√(2|t|); if s is
    0, the similarity is returned unchanged. So no constant depends on the encoder, a higher value of either never lowers a passage's score, and a
    passage that no word raises keeps its score.

    >>> with_words(np.array([-1, 0, 1], np.float32), np.array([0, 0, 1.5], np.float32)).tolist()
    [-1.0, 0.0, 2.0]
    """
    scale = scale or scale_of(similarity_P, words_P)
    if scale.spread == 0:
        return similarity_P
    gained_P = np.maximum(words_P - scale.median_bm25, 0)
    z_P = (similarity_P - scale.middle) / scale.spread
    nats_P = z_P * np.abs(z_P) / 2 + gained_P
    combined_P = scale.middle + scale.spread * np.sign(nats_P) * np.sqrt(2 * np.abs(nats_P))
    return np.where(gained_P > 0, combined_P, similarity_P).astype(np.float32)


def best_terms(index: Index, terms: list[int], passages: Ints) -> list[tuple[str, ...]]:
    """For each passage, the given terms that it contains, the highest BM25 first, at most TERMS_SHOWN; without function words, which explain nothing."""
    data = index.data
    distinct = [row for row in dict.fromkeys(terms) if data.term_texts[row] not in FUNCTION_WORDS]
    count_WP = cells(data.term_count_WP, np.array(distinct, np.int64), np.asarray(passages, np.int64))
    worth_WP = bm25(count_WP, data.term_idf_W[distinct][:, None], data.term_norm_P[passages])
    texts = []
    for worth_W in worth_WP.T:
        best = top_rows(worth_W, min(TERMS_SHOWN, int((worth_W > 0).sum())))
        texts.append(tuple(data.term_texts[distinct[row]] for row in best))
    return texts


def describe_terms(terms: Sequence[str]) -> tuple[str, ...]:
    """The question's terms in a passage, as a step of a path; no step without terms."""
    return ("shares with the question: " + ", ".join(f"“{term}”" for term in terms),) if terms else ()
