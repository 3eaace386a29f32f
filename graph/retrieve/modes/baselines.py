"""The baselines of every comparison: searches that follow no links.

`dense`: passages nearest by cosine. `naive` (ToPG §2.3.1): propositions nearest by cosine. `lexical`: passages that share the question's words,
by BM25. `hybrid`: the rankings of `dense` and `lexical` fused by rank (Cormack, Clarke & Büttcher 2009).

Legend: P passages."""

from collections.abc import Sequence

import numpy as np

from graph.index.index import Index
from graph.retrieve.parts.query import Query, RetrieveSettings
from graph.retrieve.parts.ranking import nearest, passage_of_each, passages_at, top_rows
from graph.retrieve.parts.words import best_terms, describe_terms, known_terms, word_scores
from graph.text.bm25 import terms_of
from graph.types import Evidence, Floats, Ints, Scored, Trace


def retrieve_dense(index: Index, query: Query, settings: RetrieveSettings) -> Evidence:
    """Top k passages."""
    rows, cosines = nearest(index.data.passage_vectors_PD, query.vector_D, settings.top_k)
    return Evidence(query=query.text, passages=passages_at(index, rows, cosines))


def retrieve_naive(index: Index, query: Query, settings: RetrieveSettings) -> Evidence:
    """Top k propositions and the first passage of each, ranked by the best of its propositions."""
    rows, cosines = nearest(index.data.proposition_vectors_ND, query.vector_D, settings.top_k)
    score_of = dict(zip(rows.tolist(), cosines.tolist(), strict=True))
    best = passage_of_each(index, rows)
    return Evidence(
        query=query.text,
        passages=tuple(Scored(index.passage(passage), score_of[row]) for passage, row in best),
        propositions=tuple(Scored(index.proposition(row), score) for row, score in score_of.items()),
        paths=tuple((f"contains “{index.data.proposition_texts[row]}”",) for _, row in best),
    )


def retrieve_lexical(index: Index, query: Query, settings: RetrieveSettings) -> Evidence:
    """Top k passages among those that contain a term of the question; fewer than k if fewer contain one."""
    terms = known_terms(index, query.text)
    scores_P = word_scores(index, terms)
    rows = matching_rows(scores_P, settings.top_k)
    step = f"{len(terms)} of {len(terms_of(query.text))} terms of the question are in the index"
    return Evidence(
        query=query.text,
        passages=passages_at(index, rows, scores_P[rows]),
        paths=tuple(map(describe_terms, best_terms(index, terms, rows))),
        trace=Trace("lexical", (step,)),
    )


def matching_rows(scores_P: Floats, count: int) -> Ints:
    """Rows of the `count` best passages among those with a positive score."""
    return top_rows(scores_P, min(count, int((scores_P > 0).sum())))


RANK_CONSTANT = 60
DEPTH = 1000
"""Only this many top passages of each ranking (or top k, if that is more) are fused: a deeper rank would add less than 1/1060."""


def retrieve_hybrid(index: Index, query: Query, settings: RetrieveSettings) -> Evidence:
    """Top k passages by reciprocal rank fusion."""
    depth = max(DEPTH, settings.top_k)
    by_meaning, _ = nearest(index.data.passage_vectors_PD, query.vector_D, depth)
    by_words = matching_rows(word_scores(index, known_terms(index, query.text)), depth)
    scores_P = fuse_ranks([by_meaning, by_words], len(index.data.passage_ids))
    rows = matching_rows(scores_P, settings.top_k)
    steps = (_describe_ranks(by_meaning, rows, "by meaning"), _describe_ranks(by_words, rows, "by words"))
    passages = passages_at(index, rows, scores_P[rows])
    return Evidence(query=query.text, passages=passages, paths=tuple(zip(*steps, strict=True)))


def fuse_ranks(rankings: Sequence[Ints], count: int, constant: int = RANK_CONSTANT) -> Floats:
    """RRF(d) = Σ_r 1 / (constant + rank_r(d)) over `rankings` (rows, best first) of `count` items; 0 for items in no ranking: float32.

    >>> fuse_ranks([np.array([2, 0]), np.array([2])], 3, constant=1).tolist()
    [0.3333333432674408, 0.0, 1.0]
    """
    scores_P = np.zeros(count, np.float64)
    for ranking in rankings:
        scores_P[ranking] += 1 / (constant + np.arange(1, len(ranking) + 1))
    return scores_P.astype(np.float32)


def _describe_ranks(ranking: Ints, rows: Ints, criterion: str) -> list[str]:
    """The rank of each of `rows` in a ranking by a criterion, as text."""
    rank_of = {row: rank for rank, row in enumerate(ranking.tolist(), 1)}
    return [
        f"no. {rank_of[row]:,} {criterion}" if row in rank_of else f"not found {criterion}" for row in rows.tolist()
    ]
