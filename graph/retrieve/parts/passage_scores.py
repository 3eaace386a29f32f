"""A passage's own score: the mean of its similarity and that of its best proposition, raised if the passage contains words of the question (words.py) or if
the question names its document.

Legend: P passages, N propositions, D dimensions, R some passages, X pairs of such a passage and a proposition in it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

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
"""A named document's best passage gets the whole NAMED_BONUS, its other passages this share of it."""
MAX_SCANNED_PROPOSITIONS, SCANNED_PASSAGES = 150_000, 5_000
"""When all passages are scored, so are all propositions if there are at most MAX_SCANNED_PROPOSITIONS of them, else those of the SCANNED_PASSAGES nearest
passages."""
NEAREST_CANDIDATES, BM25_CANDIDATES, SAMPLE_SIZE = 2_000, 1_000, 1_000
"""If passages have an ANN index: how many of the nearest passages and how many of those with the highest BM25 are scored, and the size of the
sample from which the scale is estimated."""
NOT_SCORED = np.float32(-np.inf)
"""The score of a proposition or a passage that has none yet, so that it is never among the best."""


@dataclass
class Scores:
    """A question's scores of propositions and passages; a proposition is scored when its score is first needed."""

    index: Index
    query_D: Floats
    scores_N: Floats
    own_P: Floats

    def add_propositions(self, rows: Ints) -> None:
        """Score the propositions in `rows` that have no score yet."""
        missing = np.unique(rows[self.scores_N[rows] == NOT_SCORED])
        if len(missing):
            cosines = self.index.data.proposition_vectors_ND[missing] @ self.query_D
            self.scores_N[missing] = normalised_similarity_to(self.index, self.query_D, cosines)

    def add_passages(self, rows: Ints) -> None:
        """Does nothing: callers have scored every passage. OwnScores, where some may have no score, overrides it."""


@dataclass
class OwnScores(Scores):
    """A question's scores of propositions and passages before any link is followed.

    `lift_P` is the part of `own_P` that the question's words add (except the words of names), and `terms` are the rows of these words. `named` are
    (name, document) pairs of the documents that the question names. `words_P` and `scale` are used to score further passages by their words.
    """

    lift_P: Floats
    terms: list[int]
    named: list[tuple[str, int]]
    words_P: Floats
    scale: Scale

    def add_passages(self, rows: Ints) -> None:
        """Score the passages in `rows` that have no score yet, and their propositions."""
        missing = np.unique(rows[self.own_P[rows] == NOT_SCORED])
        if len(missing):
            near = with_best_proposition_at(self, missing)
            self.own_P[missing] = with_words(near, self.words_P[missing], self.scale)
            self.lift_P[missing] = self.own_P[missing] - near


def score_alone(index: Index, query: Query, score_all: bool = False) -> OwnScores:
    """The scores before any link is followed. If passages have an ANN index, only some are scored, unless `score_all` is set."""
    named = named_documents(index, query.text)
    terms = unnamed_terms(index, query.text, (name for name, _ in named))
    words_P, documents = word_scores(index, terms), [document for _, document in named]
    near = None if score_all else index.data.passage_vectors_PD.candidates(query.vector_D[None], NEAREST_CANDIDATES)
    if near is not None:
        alone = _score_some(index, query.vector_D, near[0], words_P, terms, named)
        alone.own_P = add_names(index, alone.own_P, documents)
        return alone
    passages_P = score_passages(index, query.vector_D)
    scores_N = score_propositions(index, passages_P, query.vector_D)
    similarity_P = with_best_proposition(index, passages_P, scores_N)
    scale = scale_of(similarity_P, words_P)
    raised_P = with_words(similarity_P, words_P, scale)
    own_P = add_names(index, raised_P, documents)
    return OwnScores(index, query.vector_D, scores_N, own_P, raised_P - similarity_P, terms, named, words_P, scale)


def _score_some(
    index: Index, query_D: Floats, near: Ints, words_P: Floats, terms: list[int], named: list[tuple[str, int]]
) -> OwnScores:
    """The scores of the passages that are `near`, of those with the highest BM25, and of those in `named` documents."""
    data, passages = index.data, len(words_P)
    scores_N = np.full(len(data.proposition_ids), NOT_SCORED, np.float32)
    own_P = np.full(passages, NOT_SCORED, np.float32)
    sample = np.arange(0, passages, max(1, passages // SAMPLE_SIZE))
    scale = scale_of(with_best_proposition_at(Scores(index, query_D, scores_N, own_P), sample), words_P[sample])
    alone = OwnScores(index, query_D, scores_N, own_P, np.zeros_like(own_P), terms, named, words_P, scale)
    most_words = top_rows(words_P, min(BM25_CANDIDATES, int((words_P > scale.median_bm25).sum())))
    in_named = passages_in(data.passage_document_P, [document for _, document in named])
    alone.add_passages(np.concatenate([near, most_words, in_named]))
    return alone


def with_best_proposition_at(scores: Scores, rows_R: Ints) -> Floats:
    """`with_best_proposition` of some passages: float32[R]. Adds the missing scores of their propositions to `scores`."""
    data = scores.index.data
    similarity_R = normalised_similarity_to(
        scores.index, scores.query_D, data.passage_vectors_PD[rows_R] @ scores.query_D
    )
    place_X, proposition_X = expand_rows(data.passage_proposition_PN, rows_R)
    scores.add_propositions(proposition_X)
    best_R = np.full(len(rows_R), NOT_SCORED, np.float32)
    np.maximum.at(best_R, place_X, scores.scores_N[proposition_X])
    return mean_of_scored(similarity_R, best_R)


def score_passages(index: Index, query_D: Floats) -> Floats:
    """The question's similarity to every passage: float32[P]."""
    return normalised_similarity_to(index, query_D, index.data.passage_vectors_PD @ query_D)


def score_all_propositions(index: Index, query_D: Floats) -> Floats:
    """The question's similarity to every proposition: float32[N]."""
    return normalised_similarity_to(index, query_D, index.data.proposition_vectors_ND @ query_D)


def score_propositions(index: Index, similarity_P: Floats, query_D: Floats) -> Floats:
    """The question's similarity to all propositions (if more than MAX_SCANNED_PROPOSITIONS, to some), given its similarity to every passage: float32[N]."""
    data = index.data
    if len(data.proposition_ids) <= MAX_SCANNED_PROPOSITIONS:
        return score_all_propositions(index, query_D)
    scores = Scores(index, query_D, np.full(len(data.proposition_ids), NOT_SCORED, np.float32), similarity_P)
    scores.add_propositions(expand_rows(data.passage_proposition_PN, top_rows(similarity_P, SCANNED_PASSAGES))[1])
    return scores.scores_N


def scores_without_words(index: Index, query: Query, scores_N: Floats) -> Floats:
    """The score of each passage by similarity and names, without the question's words, given the scores of all propositions: float32[P]."""
    named = [document for _, document in named_documents(index, query.text)]
    return add_names(index, with_best_proposition(index, score_passages(index, query.vector_D), scores_N), named)


def with_best_proposition(index: Index, similarity_P: Floats, scores_N: Floats) -> Floats:
    """The mean of each passage's similarity and that of its best scored proposition; its similarity alone if it has none: float32[P]."""
    best_P = best_in_passage(scores_N, index.data.passage_proposition_PN, similarity_P)
    return mean_of_scored(similarity_P, best_P)


def mean_of_scored(similarity_R: Floats, best_R: Floats) -> Floats:
    """The mean of two similarities; the first alone where the second is NOT_SCORED: float32[R]."""
    return np.asarray((similarity_R + np.where(best_R == NOT_SCORED, similarity_R, best_R)) / 2, np.float32)


def add_names(index: Index, scores_P: Floats, named: list[int]) -> Floats:
    """The scores, with the bonus for the passages of `named` documents added: float32[P]."""
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
