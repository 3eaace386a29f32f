"""What the question's words say of passages: BM25, and how it is joined to nearness without a scale of either being fixed.

Legend: P passages, W terms of a question.
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from graph.index.index import Index
from graph.retrieve.parts.ranking import top_rows
from graph.store.columns.moved import cells
from graph.text.bm25 import bm25, terms_of
from graph.types import Floats, Ints

TERMS_SHOWN = 8


def known_terms(index: Index, text: str) -> list[int]:
    """Rows of the text's terms that the index has, in order, repeated ones as often as they stand there."""
    texts = index.data.term_texts
    places = [(term, bisect_left(texts, term, 0, len(texts))) for term in terms_of(text)]
    return [row for term, row in places if row < len(texts) and texts[row] == term]


def unnamed_terms(index: Index, text: str, names: Iterable[str]) -> list[int]:
    """`known_terms` without those that stand in one of `names`: what a name says is counted with the document that it calls."""
    named = {term for name in names for term in terms_of(name)}
    return [row for row in known_terms(index, text) if index.data.term_texts[row] not in named]


def word_scores(index: Index, terms: list[int]) -> Floats:
    """BM25 of every passage for terms (rows), a repeated one counted as often: float32[P]."""
    return index.term_scores.sum(terms)


@dataclass(frozen=True)
class Scale:
    """What is usual among passages: nearness m, how far what lies above it does so (s), and BM25."""

    middle: float
    spread: float
    usual_words: float


def scale_of(near_P: Floats, words_P: Floats) -> Scale:
    """The scale of all passages, or of a sample of them."""
    if len(near_P) == 0:
        return Scale(0, 0, 0)
    middle = float(np.median(near_P))
    above_P = near_P[near_P > middle] - middle
    spread = float(np.sqrt(np.square(above_P).mean())) if len(above_P) else 0
    return Scale(middle, spread, float(np.median(words_P)))


def with_words(near_P: Floats, words_P: Floats, scale: Scale | None = None) -> Floats:
    """Nearness with what words add to it, on nearness's own scale, or on that of more passages: float32[P].

    Both are brought to nats. Nearness: z|z|/2 of z = (near − m) / s, the log-likelihood of a normal variable; m is the median and s the
    root mean square of what lies above it, so that relevant passages, few and near, are judged by the bulk. Words: BM25, which
    stands for log-odds (Robertson & Zaragoza 2009), less its median, w ≥ 0. Their sum t is read back as m + s·sign(t)·√(2|t|). So no
    constant belongs to one encoder, more of either never lowers a passage, and one that no word speaks for keeps its score.

    >>> with_words(np.array([-1, 0, 1], np.float32), np.array([0, 0, 1.5], np.float32)).tolist()
    [-1.0, 0.0, 2.0]
    """
    scale = scale or scale_of(near_P, words_P)
    if scale.spread == 0:
        return near_P
    gained_P = np.maximum(words_P - scale.usual_words, 0)
    z_P = (near_P - scale.middle) / scale.spread
    nats_P = z_P * np.abs(z_P) / 2 + gained_P
    joined_P = scale.middle + scale.spread * np.sign(nats_P) * np.sqrt(2 * np.abs(nats_P))
    return np.where(gained_P > 0, joined_P, near_P).astype(np.float32)


def best_terms(index: Index, terms: list[int], passages: Ints) -> list[tuple[str, ...]]:
    """For each of the passages, those of the terms that it has and that count most in it, at most TERMS_TOLD, the first most."""
    data, distinct = index.data, list(dict.fromkeys(terms))
    count_WP = cells(data.term_count_WP, np.array(distinct, np.int64), np.asarray(passages, np.int64))
    worth_WP = bm25(count_WP, data.term_idf_W[distinct][:, None], data.term_norm_P[passages])
    found = []
    for worth_W in worth_WP.T:
        best = top_rows(worth_W, min(TERMS_SHOWN, int((worth_W > 0).sum())))
        found.append(tuple(data.term_texts[distinct[row]] for row in best))
    return found


def describe_terms(terms: Iterable[str]) -> str:
    """The terms that a passage has, as a step of a path."""
    return "has the question's " + ", ".join(f"“{term}”" for term in terms)
