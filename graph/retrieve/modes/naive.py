"""`naive` (ToPG §2.3.1): the propositions nearest to the question by cosine; the graph is not walked."""

import numpy as np

from graph.index.index import Index
from graph.retrieve.parts.near import nearest
from graph.retrieve.parts.query import Query
from graph.retrieve.parts.settings import RetrieveSettings
from graph.shared.types import Evidence, Scored


def retrieve_naive(index: Index, query: Query, settings: RetrieveSettings) -> Evidence:
    """Top k propositions, and the passages they stand in, each passage ranked by the best of its propositions."""
    data = index.data
    rows, cosines = nearest(data.proposition_vectors_ND, query.vector_D, settings.top_k)
    score_of = dict(zip(rows.tolist(), cosines.tolist(), strict=True))
    best: dict[int, int] = {}
    for row in score_of:
        first, last = np.searchsorted(data.occurrence_proposition_M, [row, row + 1])
        for passage in data.occurrence_passage_M[first:last]:
            best.setdefault(int(passage), row)
    return Evidence(
        query=query.text,
        passages=tuple(Scored(index.passage(passage), score_of[row]) for passage, row in best.items()),
        propositions=tuple(Scored(index.proposition(row), score) for row, score in score_of.items()),
        paths=tuple((f"“{data.proposition_texts[row]}” stands in it",) for row in best.values()),
    )
