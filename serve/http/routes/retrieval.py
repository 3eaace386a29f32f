"""Routes that work without a model: /v1/retrieve, /v1/suggestions, and /v1/graph/… to browse the index.

Legend: P passages, N propositions, E entities, S summaries, U documents; X = P + S the nodes of the hierarchy; K some entities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import scipy.sparse as sp
from fastapi import APIRouter, Query
from pydantic import BaseModel, Field, StringConstraints

from graph.index.index import Index, NodeKind
from serve.http.encoding import Text
from serve.http.errors import ApiError, no_model, unknown_model
from serve.server.evidence import (
    EdgeKind,
    GraphEdge,
    GraphNode,
    Layer,
    Neighbourhood,
    Overview,
    Retrieved,
    evidence_response,
)
from serve.server.mentions import entity_row, mentions_of
from serve.server.retriever import RetrievalOptions
from serve.server.services import RequestedCollection, Services

MAX_LABEL_CHARS = 80


@dataclass(frozen=True)
class Link:
    """An edge from a node to the node of `kind` in `row`; `outward` if the edge is directed towards that node."""

    edge: EdgeKind
    kind: NodeKind
    row: int
    weight: float = 1.0
    outward: bool = True


def neighbourhood(index: Index, kind: NodeKind, row: int, limit: int) -> Neighbourhood:
    """The node of `kind` in `row`, at most `limit` neighbours, and the edges to them, the strongest of each kind first."""
    center = node(index, kind, row)
    links = list(links_of(index, kind, row))
    chosen = _round_robin(links, limit)
    others = [node(index, link.kind, link.row) for link in chosen]
    nodes = {other.key: other for other in others}
    edges = []
    for link, other in zip(chosen, others, strict=True):
        ends = (center.key, other.key) if link.outward else (other.key, center.key)
        edges.append(GraphEdge(kind=link.edge, source=ends[0], target=ends[1], weight=link.weight))
    return Neighbourhood(center=center, nodes=list(nodes.values()), edges=edges, left_out=len(links) - len(chosen))


EDGES_PER_NODE = 8


def overview(index: Index, limit: int) -> Overview:
    """At most `limit` nodes: the most mentioned entities, and the documents that mention the largest number of them.

    At least half of the nodes are documents if there are enough. There are at most EDGES_PER_NODE times `limit` edges; the strongest edges of
    each document come first.
    """
    documents, entities = len(index.data.document_sources), len(index.data.entity_ids)
    max_documents = min(documents, max(limit - limit // 2, limit - entities))
    entity_rows = most_mentioned(index)[: limit - max_documents]
    mentions_UK = sp.csr_array(mentions_of(index, entity_rows).T)
    linked_U = np.diff(mentions_UK.indptr)
    document_rows = np.argsort(-linked_U, kind="stable")[:max_documents].tolist()
    links = []
    for row in document_rows:
        links += [(rank, row, *entry) for rank, entry in enumerate(_entries(mentions_UK[[row], :]))]
    links.sort(key=lambda link: (link[0], -link[3]))
    document_nodes = {row: node(index, "document", row) for row in document_rows}
    entity_nodes = [node(index, "entity", row) for row in entity_rows]
    edges = [
        GraphEdge(kind="mentions", source=document_nodes[row].key, target=entity_nodes[place].key, weight=weight)
        for _, row, place, weight in links[: EDGES_PER_NODE * limit]
    ]
    nodes = [*document_nodes.values(), *entity_nodes]
    return Overview(nodes=nodes, edges=edges, documents=documents, entities=entities)


def most_mentioned(index: Index) -> list[int]:
    """The rows of all entities, the most mentioned first."""
    mentions_E = np.diff(index.entity_proposition_EN.indptr)
    return np.argsort(-mentions_E, kind="stable").tolist()  # type: ignore[no-any-return]


def node(index: Index, kind: NodeKind, row: int) -> GraphNode:
    """The node of `kind` in `row`."""
    data = index.data
    ids = {
        "document": data.document_sources,
        "passage": data.passage_ids,
        "proposition": data.proposition_ids,
        "entity": data.entity_ids,
        "summary": data.summary_ids,
    }
    identity = ids[kind][row]
    key = f"{kind}:{identity}"
    if kind == "document":
        return GraphNode(key=key, kind=kind, id=identity, label=data.document_titles[row] or identity, source=identity)
    if kind == "passage":
        passage = index.passage(row)
        label = f"{passage.title or passage.source} · {passage.order + 1}"
        location = {"source": passage.source, "start": passage.start, "end": passage.end}
        return GraphNode.model_validate(
            {"key": key, "kind": kind, "id": identity, "label": label, "text": passage.text, **location}
        )
    column = {"proposition": data.proposition_texts, "entity": data.entity_texts, "summary": data.summary_texts}[kind]
    layer = int(data.summary_layer_S[row]) if kind == "summary" else 0
    text = index.entity_name(row) if kind == "entity" else column[row]
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
    """Edges of the node at `position` in X: to its summaries, and to similar nodes."""
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
    """Columns and values of a one-row matrix, highest value first, ties by column."""
    order = np.lexsort((one_row.indices, -one_row.data))
    yield from zip(one_row.indices[order].tolist(), one_row.data[order].astype(float).tolist(), strict=True)


def _round_robin(links: list[Link], limit: int) -> list[Link]:
    """At most `limit` links, one of each kind of edge in turn, so that no kind crowds out the others."""
    rounds: Counter[tuple[str, str, bool]] = Counter()
    ranked = []
    for position, link in enumerate(links):
        kind = (link.edge, link.kind, link.outward)
        ranked.append((rounds[kind], position))
        rounds[kind] += 1
    return [links[position] for position in sorted(position for _, position in sorted(ranked)[:limit])]


Limit = Annotated[int, Query(ge=1, le=500, description="maximum number of results")]
Offset = Annotated[int, Query(ge=0, le=10_000_000, description="number of results to skip")]
Identity = Annotated[str, Query(min_length=1, max_length=1000)]


class RetrieveRequest(RetrievalOptions):
    """A question, and how to search for its evidence."""

    query: Text = Field(min_length=1, description="the question")
    model: Annotated[Text, StringConstraints(max_length=200)] | None = Field(
        None, description="the model for `use_model`; the base model by default"
    )


class Suggestions(BaseModel):
    """Questions to start with. `index` and `generation` are as in the response of a search."""

    index: str
    generation: int
    questions: tuple[str, ...]


def retrieval_router(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["retrieval"])

    @router.post("/retrieve")
    async def retrieve(request: RetrieveRequest, view: RequestedCollection) -> Retrieved:
        """The evidence for a question, best first, with the paths that led to it. Works without the language model unless `use_model` is set."""
        backend, retriever = services.backend, services.retriever
        if request.model is not None and request.model not in backend.models:
            raise unknown_model(request.model, backend.models) if backend.models else no_model()
        question = retriever.check_question(request.query)
        settings = retriever.settings_of(request)
        model = None
        if request.use_model:
            await backend.check()
            model = backend.language_model(request.model or next(iter(backend.models), ""))
        evidence = await retriever.find(question, settings, model, view.generation)
        return evidence_response(evidence, view.generation)

    @router.get("/suggestions")
    def suggestions(view: RequestedCollection) -> Suggestions:
        """Up to three questions that the documents answer, generated by rules; none if no rule applies, as in languages other than English."""
        current = view.generation
        return Suggestions(index=current.identity, generation=current.number, questions=current.suggestions)

    _add_graph_routes(router)
    return router


def _add_graph_routes(router: APIRouter) -> None:
    @router.get("/graph/neighbourhood")
    def graph_neighbourhood(
        view: RequestedCollection,
        kind: NodeKind,
        id: Identity,  # noqa: A002
        limit: Limit = 60,
    ) -> Neighbourhood:
        """A node of the graph by its kind and id (for an entity, id or text), its neighbours and the edges to them."""
        current = view.generation
        row = entity_row(current, id, "id") if kind == "entity" else current.row(kind, id)
        if row is None:
            raise ApiError(404, "no_such_node", f"the index has no {kind} {id[:80]!r}", "id")
        return neighbourhood(current.index, kind, row, limit)

    @router.get("/graph/overview")
    def graph_overview(view: RequestedCollection, limit: Limit = 300) -> Overview:
        """The best-connected documents and entities of the index, and which document mentions which entity: the graph in one picture."""
        return overview(view.generation.index, limit)

    @router.get("/graph/entities")
    def graph_entities(
        view: RequestedCollection, q: Annotated[str, Query(max_length=200)] = "", limit: Limit = 50
    ) -> list[GraphNode]:
        """Entities whose text contains `q`, the most mentioned first."""
        index = view.generation.index
        needle = q.casefold().strip()
        rows = [row for row in most_mentioned(index) if needle in index.data.entity_texts[row].casefold()]
        return [node(index, "entity", row) for row in rows[:limit]]

    @router.get("/graph/layers")
    def graph_layers(view: RequestedCollection) -> list[Layer]:
        """The layers of the hierarchy, lowest first."""
        layers = view.generation.index.data.summary_layer_S.tolist()
        return [Layer(layer=layer, summaries=layers.count(layer)) for layer in sorted(set(layers))]

    @router.get("/graph/summaries")
    def graph_summaries(
        view: RequestedCollection, layer: Annotated[int, Query(ge=0, le=64)], limit: Limit = 50, offset: Offset = 0
    ) -> list[GraphNode]:
        """The summaries of a layer: of chunks in layer 0, of communities above."""
        index = view.generation.index
        rows = [row for row, row_layer in enumerate(index.data.summary_layer_S.tolist()) if row_layer == layer]
        return [node(index, "summary", row) for row in rows[offset : offset + limit]]
