"""`hierarchy` (GraphMPA Eq. 5–6): the nearest nodes of all layers together, passages and summaries alike, best first."""

from collections import Counter

import numpy as np

from graph.index import Index
from graph.retrieve.query import Query
from graph.retrieve.rank import top_rows
from graph.retrieve.settings import RetrieveSettings
from graph.types import Evidence, Scored, Trace


def retrieve_hierarchy(index: Index, query: Query, settings: RetrieveSettings) -> Evidence:
    """Top k nodes over every layer; the trace tells how many came from each."""
    data = index.data
    passages = len(data.passage_ids)
    scores_X = np.concatenate([data.passage_vectors_PD @ query.vector_D, data.summary_vectors_SD @ query.vector_D])
    rows = top_rows(scores_X, settings.top_k)
    kinds = Counter(
        "passages" if row < passages else layer_name(int(data.summary_layer_S[row - passages])) for row in rows
    )
    return Evidence(
        query=query.text,
        passages=tuple(Scored(index.passage(int(row)), float(scores_X[row])) for row in rows if row < passages),
        summaries=tuple(
            Scored(index.summary(int(row - passages)), float(scores_X[row])) for row in rows if row >= passages
        ),
        trace=Trace("hierarchy", tuple(f"{count} of {len(rows)} from {kind}" for kind, count in sorted(kinds.items()))),
    )


def layer_name(layer: int) -> str:
    """A summary layer in words."""
    return "summaries of chunks" if layer == 0 else f"summaries of communities, layer {layer}"
