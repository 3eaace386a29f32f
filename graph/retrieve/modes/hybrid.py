"""`hybrid`: the rankings by cosine and by BM25 fused by rank (Cormack, Clarke & Büttcher 2009), so that no scale has to fit another.

Legend: P passages.
"""

from collections.abc import Sequence

import numpy as np

from graph.index.index import Index
from graph.retrieve.modes.lexical import matching_rows
from graph.retrieve.parts.near import nearest
from graph.retrieve.parts.query import Query
from graph.retrieve.parts.settings import RetrieveSettings
from graph.retrieve.parts.words import known_terms, word_scores
from graph.shared.types import Evidence, Floats, Ints, Scored

RANK_CONSTANT = 60
DEPTH = 1000
"""Ranks of each ranking that count: what stands deeper adds less than 1/1060."""


def retrieve_hybrid(index: Index, query: Query, settings: RetrieveSettings) -> Evidence:
    """Top k passages by reciprocal rank fusion."""
    depth = max(DEPTH, settings.top_k)
    by_meaning, _ = nearest(index.data.passage_vectors_PD, query.vector_D, depth)
    by_words = matching_rows(word_scores(index, known_terms(index, query.text)), depth)
    scores_P = fuse_ranks([by_meaning, by_words], len(index.data.passage_ids))
    rows = matching_rows(scores_P, settings.top_k)
    ranks = [{int(row): rank for rank, row in enumerate(ranking, 1)} for ranking in (by_meaning, by_words)]
    return Evidence(
        query=query.text,
        passages=tuple(Scored(index.passage(int(row)), float(scores_P[row])) for row in rows),
        paths=tuple(
            (_told("by meaning", ranks[0].get(int(row))), _told("by words", ranks[1].get(int(row)))) for row in rows
        ),
    )


def fuse_ranks(rankings: Sequence[Ints], count: int, constant: int = RANK_CONSTANT) -> Floats:
    """RRF(d) = Σ_r 1 / (k + rank_r(d)) over `rankings` (rows, best first) of `count` items; 0 for what none ranks: float32.

    >>> fuse_ranks([np.array([2, 0]), np.array([2])], 3, constant=1).tolist()
    [0.3333333432674408, 0.0, 1.0]
    """
    scores_P = np.zeros(count, np.float64)
    for ranking in rankings:
        scores_P[ranking] += 1 / (constant + np.arange(1, len(ranking) + 1))
    return scores_P.astype(np.float32)


def _told(how: str, rank: int | None) -> str:
    return f"{how} no. {rank:,}" if rank is not None else f"{how} not found"
