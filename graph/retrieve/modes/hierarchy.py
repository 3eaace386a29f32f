"""`hierarchy` (GraphMPA Eq. 5–6): the nearest nodes of all layers together, passages and summaries alike, best first.

Legend: X nodes (passages, then summaries), S summaries, k some nodes, D dimensions."""

from collections import Counter
from collections.abc import Collection

import numpy as np

from graph.errors import UserError
from graph.index.index import Index
from graph.retrieve.parts.query import Query, RetrieveSettings
from graph.retrieve.parts.ranking import top_rows
from graph.types import Evidence, Floats, Ints, Passage, Scored, Summary, Trace


def retrieve_hierarchy(index: Index, query: Query, settings: RetrieveSettings) -> Evidence:
    """Top k nodes of all layers, or of the layers in the settings; the trace gives the number of these nodes in each layer."""
    candidates = rows_in_layers(index, settings.layers)
    scores_X = node_scores(index, query.vector_D)
    rows = candidates[top_rows(scores_X[candidates], settings.top_k)]
    passages, summaries = nodes_in(index, rows, scores_X[rows])
    kinds = ["passages"] * len(passages) + [layer_name(each.item.layer) for each in summaries]
    steps = tuple(f"{count} of {len(rows)} from {kind}" for kind, count in sorted(Counter(kinds).items()))
    return Evidence(query=query.text, passages=passages, summaries=summaries, trace=Trace("hierarchy", steps))


def rows_in_layers(index: Index, layers: Collection[int]) -> Ints:
    """The rows of the nodes in `layers` (empty: all), ascending; passages come before summaries."""
    layer_X = _layers_of(index)
    return np.flatnonzero(np.isin(layer_X, list(layers))) if layers else np.arange(len(layer_X))


def check_layers(index: Index, layers: Collection[int]) -> None:
    """UserError for a layer without nodes, unless the index is empty."""
    available = np.unique(_layers_of(index)).tolist()
    missing = sorted(set(layers) - set(available))
    if missing and available:
        found = f"layers = {sorted(set(layers))}: layer {missing[0]} has no nodes in this index"
        expected = f"one or more of {', '.join(map(str, available))}"
        raise UserError(found, expected, "change the value, or index with more layers")


def _layers_of(index: Index) -> Ints:
    """The layer of every node, passages (layer 0) before summaries: int64[X]."""
    return np.concatenate([np.zeros(len(index.data.passage_ids), np.int64), index.data.summary_layer_S])


def node_scores(index: Index, query_D: Floats) -> Floats:
    """The cosine of every node with the question, passages before summaries: float32[X]."""
    data = index.data
    return np.concatenate([data.passage_vectors_PD @ query_D, data.summary_vectors_SD @ query_D])


def nodes_in(
    index: Index, rows_k: Ints, scores_k: Floats
) -> tuple[tuple[Scored[Passage], ...], tuple[Scored[Summary], ...]]:
    """The passages among the given nodes, and the summaries among them, in the order of the nodes and with their scores."""
    passages = len(index.data.passage_ids)
    pairs = list(zip(rows_k.tolist(), scores_k.tolist(), strict=True))
    return (
        tuple(Scored(index.passage(row), score) for row, score in pairs if row < passages),
        tuple(Scored(index.summary(row - passages), score) for row, score in pairs if row >= passages),
    )


def layer_name(layer: int) -> str:
    """A summary layer's name for the trace."""
    return "summaries of chunks" if layer == 0 else f"summaries of communities, layer {layer}"
