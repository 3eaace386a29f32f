"""What a passage is worth by itself: its own cosine and its best proposition's, and more where it has the question's words (words.py)
or the question calls its document by name.

Legend: P passages, N propositions, D dimensions.
"""

from dataclasses import dataclass

import numpy as np

from graph.index.index import Index
from graph.retrieve.parts.gather import best_in_passage, expand_rows
from graph.retrieve.parts.query import Query
from graph.retrieve.parts.rank import top_rows
from graph.retrieve.parts.titles import named_documents
from graph.retrieve.parts.words import unnamed_terms, with_words, word_scores
from graph.shared.types import Floats, Ints

NAMED_BONUS = 0.5
OTHER_PASSAGES_SHARE = 0.25
"""A named document's best passage gets the whole bonus, its others this share of it."""
SCAN_ALL, SCANNED_PASSAGES = 150_000, 5_000
"""Up to so many propositions all are scored; in larger indexes those of so many passages, the nearest to the question."""
UNSEEN = np.float32(-2)
"""The score of a proposition that was not looked at."""


@dataclass(frozen=True)
class ByItself:
    """What a question is to each proposition and passage before anything is followed.

    `lift_P` is how much of `own_P` is by the question's words, `terms` (rows) those that count: the others stand in a name. `named` are
    (name, document) that the question calls.
    """

    scores_N: Floats
    own_P: Floats
    lift_P: Floats
    terms: list[int]
    named: list[tuple[str, int]]


def score_alone(index: Index, query: Query) -> ByItself:
    """The scores of propositions and passages by themselves."""
    cosines_P = index.data.passage_vectors_PD @ query.vector_D
    scores_N = score_propositions(index, cosines_P, query.vector_D)
    named = named_documents(index, query.text)
    terms = unnamed_terms(index, query.text, (name for name, _ in named))
    near_P = near_scores(index, cosines_P, scores_N)
    raised_P = with_words(near_P, word_scores(index, terms))
    own_P = add_names(index, raised_P, [document for _, document in named])
    return ByItself(scores_N, own_P, raised_P - near_P, terms, named)


def score_propositions(index: Index, cosines_P: Floats, query_D: Floats) -> Floats:
    """The question's cosine to every proposition: float32[N].

    In an index of more than SCAN_ALL only those of the nearest SCANNED_PASSAGES are looked at; others are UNSEEN.
    """
    data = index.data
    if len(data.proposition_ids) <= SCAN_ALL:
        return np.asarray(data.proposition_vectors_ND @ query_D, np.float32)
    scores_N = np.full(len(data.proposition_ids), UNSEEN, np.float32)
    look_at(
        index, expand_rows(data.passage_proposition_PN, top_rows(cosines_P, SCANNED_PASSAGES))[1], scores_N, query_D
    )
    return scores_N


def look_at(index: Index, rows: Ints, scores_N: Floats, query_D: Floats) -> None:
    """Fill in the scores of those of the given propositions that are UNSEEN."""
    unseen = np.unique(rows[scores_N[rows] == UNSEEN])
    scores_N[unseen] = index.data.proposition_vectors_ND[unseen] @ query_D


def own_scores(index: Index, cosines_P: Floats, scores_N: Floats, named: list[int]) -> Floats:
    """What each passage is worth by nearness and names, without the question's words: float32[P]."""
    return add_names(index, near_scores(index, cosines_P, scores_N), named)


def near_scores(index: Index, cosines_P: Floats, scores_N: Floats) -> Floats:
    """The mean of each passage's own cosine and that of its best proposition that was looked at: float32[P]."""
    best_P = best_in_passage(scores_N, index.data.passage_proposition_PN, cosines_P)
    return np.asarray((cosines_P + np.where(best_P == UNSEEN, cosines_P, best_P)) / 2, np.float32)


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


def passages_of(passage_document_P: Ints, document: int) -> tuple[int, int]:
    """The rows of a document's passages: first, and one past the last."""
    first, last = np.searchsorted(passage_document_P, [document, document + 1])
    return int(first), int(last)
