"""The probability of absence, that is, that the documents do not cover a question; it is estimated from the retrieved passages. No model is called.

Three values, each at most 1, measure how well the retrieved passages match the question (`absence_features`), on one scale for every encoder
and collection; the probability is a logistic function of them. Its coefficients are fitted on examples/ only (`benchmarks/abstain.py --fit`):
questions are run on parts of the collection that contain their documents and on parts that do not, and both cases have equal weight.

Legend: F features, R passages, P passages, W terms.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from graph.index.index import Index
from graph.index.normalised_similarity import normalised_similarity_to
from graph.retrieve.parts.mentions import broad_words
from graph.retrieve.parts.query import Query
from graph.retrieve.parts.words import row_of_term
from graph.text.bm25 import content_terms, idf, terms_of
from graph.text.word_forms import form_of
from graph.types import Absence, Evidence, Floats, Passage

TOP_PASSAGES = 5
"""How many of the best passages are compared with the question: as many as an answer's context contains by default."""
INTERCEPT = 9.4
COEFFICIENTS_F = np.array([-5.5, -1.4, -12.2])


def judge_absence(index: Index, query: Query, evidence: Evidence, threshold: float) -> Absence | None:
    """The probability that the documents do not cover a question, given its evidence, and whether it reaches `threshold`.

    None for a question about the whole collection, and for evidence that consists only of summaries, which need not contain the words of a question.
    """
    if broad_words(index, query.text) or (evidence.summaries and not evidence.passages):
        return None
    passages = [scored.item for scored in evidence.passages[:TOP_PASSAGES]]
    probability = absence(absence_features(index, query, passages))
    return Absence(probability, probability >= threshold)


def absence(features_F: Floats) -> float:
    """1 / (1 + exp(−(b + c·x))), decreasing in each of the features.

    >>> absence(np.zeros(3)) > 0.99, absence(np.ones(3)) < 0.01
    (True, True)
    """
    return float(1 / (1 + np.exp(-(INTERCEPT + COEFFICIENTS_F @ features_F))))


def absence_features(index: Index, query: Query, passages: Sequence[Passage]) -> Floats:
    """How well passages match a question: the idf-weighted share of the question's words in the passage with the highest share, the share in all
    passages together, and the normalised similarity of the most similar passage: float32[3].
    """
    weights = word_weights(index, query.text)
    forms = [set(map(form_of, set(terms_of(f"{passage.title} {passage.text}")))) for passage in passages]
    best = max((share_of(weights, each) for each in forms), default=0.0)
    return np.array(
        [best, share_of(weights, set().union(*forms)), highest_similarity(index, query, passages)], np.float32
    )


def word_weights(index: Index, question: str) -> dict[str, float]:
    """The content words of a question, as forms (`form_of`), with their idf among the passages of `index`, which conditions may have restricted."""
    terms = content_terms(question)
    row_of = {term: row for term in terms if (row := row_of_term(index, term)) is not None}
    passages_W = index.data.term_passages_W
    passages = [int(passages_W[row_of[term]]) if term in row_of else 0 for term in terms]
    idf_W = idf(np.array(passages, np.int64), len(index.data.passage_ids))
    weights: dict[str, float] = {}
    for term, weight in zip(terms, idf_W.tolist(), strict=True):
        weights[form_of(term)] = max(weight, weights.get(form_of(term), 0.0))
    return weights


def share_of(weights: Mapping[str, float], forms: set[str]) -> float:
    """Σ weight of the words that are among `forms` / Σ weight of all words; 1 if there are no words.

    >>> share_of({"ferry": 3.0, "built": 1.0}, {"ferry", "sank"}), share_of({}, set())
    (0.75, 1.0)
    """
    total = sum(weights.values())
    return sum(weight for word, weight in weights.items() if word in forms) / total if total else 1.0


def highest_similarity(index: Index, query: Query, passages: Sequence[Passage]) -> float:
    """The normalised similarity of the question to the passage most similar to it; 0 without passages."""
    if not passages:
        return 0.0
    cosines_R = index.data.passage_vectors_PD[index.rows_of(passages)] @ query.vector_D
    return float(normalised_similarity_to(index, query.vector_D, cosines_R).max())
