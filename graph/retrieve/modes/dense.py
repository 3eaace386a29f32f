"""`dense`: the passages nearest to the question by cosine. The baseline of every comparison."""

from graph.index.index import Index
from graph.retrieve.parts.near import nearest
from graph.retrieve.parts.query import Query
from graph.retrieve.parts.settings import RetrieveSettings
from graph.shared.types import Evidence, Scored


def retrieve_dense(index: Index, query: Query, settings: RetrieveSettings) -> Evidence:
    """Top k passages."""
    rows, cosines = nearest(index.data.passage_vectors_PD, query.vector_D, settings.top_k)
    found = zip(rows.tolist(), cosines.tolist(), strict=True)
    return Evidence(query=query.text, passages=tuple(Scored(index.passage(row), cosine) for row, cosine in found))
