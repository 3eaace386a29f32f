"""What stands beside a node of the graph: documents, passages, propositions, entities and summaries, one step away.

Legend: P passages, N propositions, E entities, S summaries, U documents; X = P + S the nodes of the hierarchy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from graph.index.index import Index
from graph.index.lookup import NodeKind
from serve.views.evidence import EdgeKind, GraphEdge, GraphNode, Neighbourhood

MAX_LABEL_CHARS = 80


@dataclass(frozen=True)
class Link:
    """An edge from a node to `kind`'s `row`; `outward` when it leads there by its own direction."""

    edge: EdgeKind
    kind: NodeKind
    row: int
    weight: float = 1.0
    outward: bool = True


def neighbourhood(index: Index, kind: NodeKind, row: int, limit: int) -> Neighbourhood:
    """The node in a row, at most `limit` neighbours, and the edges to them; the strongest of each kind of edge first."""
    center = node(index, kind, row)
    links = list(links_of(index, kind, row))
    kept = _in_turns(links, limit)
    nodes = {node(index, link.kind, link.row).key: node(index, link.kind, link.row) for link in kept}
    edges = []
    for link in kept:
        there = f"{link.kind}:{_id(index, link.kind, link.row)}"
        ends = (center.key, there) if link.outward else (there, center.key)
        edges.append(GraphEdge(kind=link.edge, source=ends[0], target=ends[1], weight=link.weight))
    return Neighbourhood(center=center, nodes=list(nodes.values()), edges=edges, left_out=len(links) - len(kept))


def node(index: Index, kind: NodeKind, row: int) -> GraphNode:
    """A row of a kind as a node."""
    data, identity = index.data, _id(index, kind, row)
    key = f"{kind}:{identity}"
    if kind == "document":
        return GraphNode(key=key, kind=kind, id=identity, label=data.document_titles[row] or identity, source=identity)
    if kind == "passage":
        found = index.passage(row)
        label = f"{found.title} · {found.order + 1}" if found.title else f"{found.source} · {found.order + 1}"
        place = {"source": found.source, "start": found.start, "end": found.end}
        return GraphNode.model_validate(
            {"key": key, "kind": kind, "id": identity, "label": label, "text": found.text, **place}
        )
    column = {"proposition": data.proposition_texts, "entity": data.entity_texts, "summary": data.summary_texts}[kind]
    layer = int(data.summary_layer_S[row]) if kind == "summary" else 0
    text = column[row]
    return GraphNode(key=key, kind=kind, id=identity, label=text[:MAX_LABEL_CHARS], text=text, layer=layer)


def links_of(index: Index, kind: NodeKind, row: int) -> Iterator[Link]:
    """All edges of a node."""
    data = index.data
    if kind == "document":
        for passage in np.flatnonzero(data.passage_document_P == row).tolist():
            yield Link("has", "passage", passage)
        yield from _column("called", "entity", data.entity_document_EU, row, outward=True)
    elif kind == "passage":
        yield Link("has", "document", int(data.passage_document_P[row]), outward=False)
        yield from _row("next", "passage", data.passage_next_PP, row)
        yield from _column("next", "passage", data.passage_next_PP, row)
        yield from _row("states", "proposition", data.passage_proposition_PN, row)
        yield from _in_hierarchy(index, row)
    elif kind == "proposition":
        yield from _row("states", "passage", index.proposition_passage_NP, row, outward=False)
        yield from _row("mentions", "entity", data.proposition_entity_NE, row)
    elif kind == "entity":
        yield from _row("mentions", "proposition", index.entity_proposition_EN, row, outward=False)
        yield from _row("called", "document", data.entity_document_EU, row, outward=False)
        yield from _row("synonym", "entity", data.synonym_EE, row)
    else:
        for member, weight in _entries(data.summary_member_SX[[row], :]):
            yield Link("sums up", *_hierarchy_node(index, member), weight)
        yield from _in_hierarchy(index, len(data.passage_ids) + row)


def _in_hierarchy(index: Index, position: int) -> Iterator[Link]:
    """Summaries above and nodes like the one at `position` of X."""
    yield from _column("sums up", "summary", index.data.summary_member_SX, position)
    for other, weight in _entries(index.data.similarity_XX[[position], :]):
        yield Link("similar", *_hierarchy_node(index, other), weight)


def _hierarchy_node(index: Index, position: int) -> tuple[NodeKind, int]:
    passages = len(index.data.passage_ids)
    return ("passage", position) if position < passages else ("summary", position - passages)


def _row(edge: EdgeKind, kind: NodeKind, block: sp.csr_array, row: int, outward: bool = True) -> Iterator[Link]:
    for other, weight in _entries(block[[row], :]):
        yield Link(edge, kind, other, weight, outward)


def _column(edge: EdgeKind, kind: NodeKind, block: sp.csr_array, column: int, outward: bool = False) -> Iterator[Link]:
    for other, weight in _entries(sp.csr_array(block[:, [column]].T)):
        yield Link(edge, kind, other, weight, outward)


def _entries(one_row: sp.csr_array) -> Iterator[tuple[int, float]]:
    """Columns and values of a matrix of one row, the highest value first, ties by column."""
    order = np.lexsort((one_row.indices, -one_row.data))
    yield from zip(one_row.indices[order].tolist(), one_row.data[order].astype(float).tolist(), strict=True)


def _in_turns(links: list[Link], limit: int) -> list[Link]:
    """At most `limit` links, one of each kind of edge in turn, so that no kind crowds out the others."""
    places: dict[tuple[str, str, bool], int] = {}
    ranked = []
    for place, link in enumerate(links):
        kind = (link.edge, link.kind, link.outward)
        places[kind] = places.get(kind, -1) + 1
        ranked.append((places[kind], place, link))
    chosen = sorted(ranked, key=lambda each: each[:2])[:limit]
    return [link for _, _, link in sorted(chosen, key=lambda each: each[1])]


def _id(index: Index, kind: NodeKind, row: int) -> str:
    data = index.data
    columns = {
        "document": data.document_sources,
        "passage": data.passage_ids,
        "proposition": data.proposition_ids,
        "entity": data.entity_ids,
        "summary": data.summary_ids,
    }
    return columns[kind][row]
