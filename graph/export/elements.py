"""The typed nodes and edges of an index and its occurrences, in canonical order, as the export formats write them.

Legend: U documents, P passages, N propositions, E entities, K topics, M occurrences, S summaries; X = P + S the nodes of the similarity graph.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import scipy.sparse as sp

from graph.index.index import Index
from graph.store.columns.strings import Strings

NodeKind = Literal["document", "passage", "proposition", "entity", "topic", "summary"]
NODE_KINDS: tuple[NodeKind, ...] = get_args(NodeKind)
NODE_TABLES: dict[NodeKind, str] = {
    "document": "documents",
    "passage": "passages",
    "proposition": "propositions",
    "entity": "entities",
    "topic": "topics",
    "summary": "summaries",
}
"""The name of the table of each kind, in the formats that have tables."""
COLUMNS: dict[str, dict[str, type[str | int | float]]] = {
    "documents": {"id": str, "title": str, "metadata": str},
    "passages": {"id": str, "source": str, "order": int, "start": int, "end": int, "text": str},
    "propositions": {"id": str, "text": str},
    "entities": {"id": str, "text": str},
    "topics": {"id": str, "text": str},
    "summaries": {"id": str, "layer": int, "text": str},
    "occurrences": {"proposition": str, "passage": str, "start": int, "end": int},
    "edges": {"kind": str, "source": str, "target": str, "weight": float},
}
"""The columns of each table, without vectors; `metadata` is JSON."""
EdgeKind = Literal["has", "next", "states", "mentions", "called", "synonym", "about", "sums up", "similar"]
Value = str | int


@dataclass(frozen=True)
class Node:
    """`key` is unique across all kinds: the kind and the id. `values` has the same keys in every node of a kind."""

    key: str
    kind: NodeKind
    values: dict[str, Value]


@dataclass(frozen=True)
class Edge:
    """An edge from one node to another, by their keys; `weight` is a number of occurrences (states, mentions, about), a cosine (synonym, similar), or 1."""

    kind: EdgeKind
    source: str
    target: str
    weight: float


def escape_key(key: str, forbidden: str) -> str:
    """A key in which U+FFFD, the code point and ";" replace each character that the pattern `forbidden` matches, and U+FFFD itself.

    Different keys stay different.

    >>> escape_key("a\\x0b", "\\x0b"), escape_key("a\\ufffdb;", "\\x0b")
    ('a\ufffdb;', 'a\ufffdfffd;b;')
    """
    return re.sub(f"{forbidden}|\ufffd", lambda match: f"\ufffd{ord(match[0]):x};", key)


def nodes(index: Index, kind: NodeKind) -> Iterator[Node]:
    data = index.data
    if kind == "document":
        columns = data.document_sources, data.document_titles, data.document_metadata
        for source, title, metadata in zip(*columns, strict=True):
            yield Node(f"document:{source}", kind, {"id": source, "title": title, "metadata": metadata})
    elif kind == "passage":
        for row in range(len(data.passage_ids)):
            passage = index.passage(row)
            yield Node(f"passage:{passage.id}", kind, {name: getattr(passage, name) for name in COLUMNS["passages"]})
    elif kind == "summary":
        for row in range(len(data.summary_ids)):
            identity, layer = data.summary_ids[row], int(data.summary_layer_S[row])
            yield Node(f"summary:{identity}", kind, {"id": identity, "layer": layer, "text": data.summary_texts[row]})
    else:
        ids, text_of = {
            "proposition": (data.proposition_ids, data.proposition_texts.__getitem__),
            "entity": (data.entity_ids, index.entity_name),
            "topic": (data.topic_ids, data.topic_texts.__getitem__),
        }[kind]
        for row, identity in enumerate(ids):
            yield Node(f"{kind}:{identity}", kind, {"id": identity, "text": text_of(row)})


def edges(index: Index) -> Iterator[Edge]:
    """All edges, kind by kind; each undirected edge once."""
    data = index.data
    document, passage = _keys("document", data.document_sources), _keys("passage", data.passage_ids)
    proposition, entity = _keys("proposition", data.proposition_ids), _keys("entity", data.entity_ids)
    topic, summary = _keys("topic", data.topic_ids), _keys("summary", data.summary_ids)
    passages = len(data.passage_ids)

    def node(row: int) -> str:
        return passage(row) if row < passages else summary(row - passages)

    for row, owner in enumerate(data.passage_document_P.tolist()):
        yield Edge("has", document(owner), passage(row), 1)
    yield from _entries("next", data.passage_next_PP, passage, passage)
    yield from _entries("states", data.passage_proposition_PN, passage, proposition)
    yield from _entries("mentions", data.proposition_entity_NE, proposition, entity)
    yield from _entries("called", sp.csr_array(data.entity_document_EU.T), document, entity)
    yield from _entries("synonym", sp.triu(data.synonym_EE), entity, entity)
    yield from _entries("about", sp.csr_array(data.topic_proposition_KN.T), proposition, topic)
    yield from _entries("sums up", data.summary_member_SX, summary, node)
    yield from _entries("similar", sp.triu(data.similarity_XX), node, node)


def occurrences(index: Index) -> Iterator[tuple[str, str, int, int]]:
    """Where each proposition is stated: its id, the passage's id, and the characters start ≤ i < end of the passage's document."""
    data = index.data
    columns = data.occurrence_proposition_M, data.occurrence_passage_M, data.occurrence_start_M, data.occurrence_end_M
    for proposition, passage, start, end in zip(*columns, strict=True):
        yield data.proposition_ids[proposition], data.passage_ids[passage], int(start), int(end)


def _entries(
    kind: EdgeKind, block: sp.csr_array | sp.coo_array, source: Callable[[int], str], target: Callable[[int], str]
) -> Iterator[Edge]:
    entries = block.tocoo()
    order = np.lexsort((entries.coords[1], entries.coords[0]))
    columns = entries.coords[0][order].tolist(), entries.coords[1][order].tolist(), entries.data[order].tolist()
    for row, column, weight in zip(*columns, strict=True):
        yield Edge(kind, source(row), target(column), weight)


def _keys(kind: NodeKind, ids: Strings) -> Callable[[int], str]:
    return lambda row: f"{kind}:{ids[row]}"
