"""What a passage is worth by itself: its own nearness and its best proposition's, and more where it has the question's words (words.py)
or the question calls its document by name.

Legend: P passages, N propositions, D dimensions.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from graph.index.index import Index
from graph.index.normalised_similarity import normalised_similarity_to
from graph.retrieve.parts.mentions import named_documents
from graph.retrieve.parts.query import Query
from graph.retrieve.parts.ranking import best_in_passage, expand_rows, top_rows
from graph.retrieve.parts.words import Scale, scale_of, unnamed_terms, with_words, word_scores
from graph.types import Floats, Ints

NAMED_BONUS = 0.5
OTHER_PASSAGES_SHARE = 0.25
"""A named document's best passage gets the whole bonus, its others this share of it."""
SCAN_ALL, SCANNED_PASSAGES = 150_000, 5_000
"""Up to so many propositions all are scored; in larger indexes those of so many passages, the nearest to the question."""
NEAREST_SEEN, WORDED_SEEN, SAMPLED = 2_000, 1_000, 1_000
"""Passages of an index with ANN indexes that are looked at: the nearest, those with most of the question's words, and a sample of all."""
UNSEEN = np.float32(-1_000)
"""The score of a proposition or a passage that was not looked at; no nearness is so low (graph/index/normalised_similarity.py)."""


LookAt = Callable[[Ints], None]
"""Fills in what is UNSEEN of the scores of passages."""


def all_scored(rows: Ints) -> None:
    """The LookAt where every passage has a score."""
    del rows


@dataclass(frozen=True)
class OwnScores:
    """What a question is to each proposition and passage before anything is followed.

    `lift_P` is how much of `own_P` is by the question's words, `terms` (rows) those that count: the others stand in a name. `named` are
    (name, document) that the question calls. `words_P` and `scale` are what the scores of further passages follow from.
    """

    scores_N: Floats
    own_P: Floats
    lift_P: Floats
    terms: list[int]
    named: list[tuple[str, int]]
    words_P: Floats
    scale: Scale


def score_alone(index: Index, query: Query, of_all: bool = False) -> OwnScores:
    """The scores of propositions and passages by themselves.

    In an index with ANN indexes only some passages are looked at, unless the scores `of_all` are asked for: others are UNSEEN.
    """
    named = named_documents(index, query.text)
    terms = unnamed_terms(index, query.text, (name for name, _ in named))
    words_P, documents = word_scores(index, terms), [document for _, document in named]
    near = None if of_all else index.data.passage_vectors_PD.candidates(query.vector_D[None], NEAREST_SEEN)
    if near is not None:
        alone = _score_some(index, query.vector_D, near[0], words_P, terms, named)
        return replace(alone, own_P=add_names(index, alone.own_P, documents))
    passages_P = score_passages(index, query.vector_D)
    scores_N = score_propositions(index, passages_P, query.vector_D)
    near_P = near_scores(index, passages_P, scores_N)
    scale = scale_of(near_P, words_P)
    raised_P = with_words(near_P, words_P, scale)
    return OwnScores(scores_N, add_names(index, raised_P, documents), raised_P - near_P, terms, named, words_P, scale)


def _score_some(
    index: Index, query_D: Floats, near: Ints, words_P: Floats, terms: list[int], named: list[tuple[str, int]]
) -> OwnScores:
    """The scores of the passages that are `near`, of those with most words, and of those in documents that are named."""
    data, passages = index.data, len(words_P)
    scores_N = np.full(len(data.proposition_ids), UNSEEN, np.float32)
    sample = np.arange(0, passages, max(1, passages // SAMPLED))
    scale = scale_of(near_of(index, sample, scores_N, query_D), words_P[sample])
    own_P = np.full(passages, UNSEEN, np.float32)
    alone = OwnScores(scores_N, own_P, np.zeros_like(own_P), terms, named, words_P, scale)
    worded = top_rows(words_P, min(WORDED_SEEN, int((words_P > scale.usual_words).sum())))
    called = passages_in(data.passage_document_P, [document for _, document in named])
    look_at_passages(index, alone, query_D, np.concatenate([near, worded, called]))
    return alone


def look_at_passages(index: Index, alone: OwnScores, query_D: Floats, rows: Ints) -> None:
    """Fill in the scores of those of the given passages that are UNSEEN, and of their propositions."""
    unseen = np.unique(rows[alone.own_P[rows] == UNSEEN])
    near = near_of(index, unseen, alone.scores_N, query_D)
    alone.own_P[unseen] = with_words(near, alone.words_P[unseen], alone.scale)
    alone.lift_P[unseen] = alone.own_P[unseen] - near


def near_of(index: Index, rows_R: Ints, scores_N: Floats, query_D: Floats) -> Floats:
    """`near_scores` of some passages: float32[R]. Scores of their propositions are filled in."""
    near_R = normalised_similarity_to(index, query_D, index.data.passage_vectors_PD[rows_R] @ query_D)
    place_X, proposition_X = expand_rows(index.data.passage_proposition_PN, rows_R)
    look_at(index, proposition_X, scores_N, query_D)
    best_R = np.full(len(rows_R), UNSEEN, np.float32)
    np.maximum.at(best_R, place_X, scores_N[proposition_X])
    return np.asarray((near_R + np.where(best_R == UNSEEN, near_R, best_R)) / 2, np.float32)


def score_passages(index: Index, query_D: Floats) -> Floats:
    """The question's nearness to every passage: float32[P]."""
    return normalised_similarity_to(index, query_D, index.data.passage_vectors_PD @ query_D)


def score_propositions(index: Index, near_P: Floats, query_D: Floats) -> Floats:
    """The question's nearness to every proposition, given that to every passage: float32[N].

    In an index of more than SCAN_ALL only those of the nearest SCANNED_PASSAGES are looked at; others are UNSEEN.
    """
    data = index.data
    if len(data.proposition_ids) <= SCAN_ALL:
        return normalised_similarity_to(index, query_D, data.proposition_vectors_ND @ query_D)
    scores_N = np.full(len(data.proposition_ids), UNSEEN, np.float32)
    scanned = expand_rows(data.passage_proposition_PN, top_rows(near_P, SCANNED_PASSAGES))[1]
    look_at(index, scanned, scores_N, query_D)
    return scores_N


def look_at(index: Index, rows: Ints, scores_N: Floats, query_D: Floats) -> None:
    """Fill in the scores of those of the given propositions that are UNSEEN."""
    unseen = np.unique(rows[scores_N[rows] == UNSEEN])
    scores_N[unseen] = normalised_similarity_to(index, query_D, index.data.proposition_vectors_ND[unseen] @ query_D)


def own_scores(index: Index, near_P: Floats, scores_N: Floats, named: list[int]) -> Floats:
    """What each passage is worth by nearness and names, without the question's words: float32[P]."""
    return add_names(index, near_scores(index, near_P, scores_N), named)


def near_scores(index: Index, near_P: Floats, scores_N: Floats) -> Floats:
    """The mean of each passage's own nearness and that of its best proposition that was looked at: float32[P]."""
    best_P = best_in_passage(scores_N, index.data.passage_proposition_PN, near_P)
    return np.asarray((near_P + np.where(best_P == UNSEEN, near_P, best_P)) / 2, np.float32)


def add_names(index: Index, scores_P: Floats, named: list[int]) -> Floats:
    """The scores with NAMED_BONUS for the passages of `named` documents: float32[P]."""
    own_P = scores_P.copy()
    for document in dict.fromkeys(named):
        first, last = passages_of(index.data.passage_document_P, document)
        if first < last:
            best = first + int(own_P[first:last].argmax())
            own_P[first:last] += NAMED_BONUS * OTHER_PASSAGES_SHARE
            own_P[best] += NAMED_BONUS * (1 - OTHER_PASSAGES_SHARE)
    return own_P


def passages_in(passage_document_P: Ints, documents: Iterable[int]) -> Ints:
    """The rows of the passages of some documents, document by document."""
    found = [np.arange(*passages_of(passage_document_P, document)) for document in documents]
    return np.concatenate([np.zeros(0, np.int64), *found])


def passages_of(passage_document_P: Ints, document: int) -> tuple[int, int]:
    """The rows of a document's passages: first, and one past the last."""
    first, last = np.searchsorted(passage_document_P, [document, document + 1])
    return int(first), int(last)
