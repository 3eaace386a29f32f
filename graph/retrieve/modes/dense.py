"""`dense`: the passages nearest to the question by cosine. The baseline of every comparison."""

from graph.index.index import Index
from graph.retrieve.parts.query import Query
from graph.retrieve.parts.rank import top_rows
from graph.retrieve.parts.settings import RetrieveSettings
from graph.shared.types import Evidence, Scored


def retrieve_dense(index: Index, query: Query, settings: RetrieveSettings) -> Evidence:
    """Top k passages."""
    scores_P = index.data.passage_vectors_PD @ query.vector_D
    rows = top_rows(scores_P, settings.top_k)
    return Evidence(
        query=query.text, passages=tuple(Scored(index.passage(int(row)), float(scores_P[row])) for row in rows)
    )
