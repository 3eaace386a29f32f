"""The routes that need no model: /v1/retrieve, and /v1/graph/… to look around in the index."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field, StringConstraints

from graph.extract.entities import entity_key
from graph.index.lookup import NodeKind
from graph.shared.ids import content_id
from serve.http.routes.retriever import RetrievalOptions
from serve.http.routes.services import SeenCollection, Services
from serve.http.shared.encoding import Text
from serve.http.shared.errors import ApiError, unknown_model
from serve.views.evidence import GraphNode, Layer, Neighbourhood, Retrieved, retrieved
from serve.views.neighbourhood import neighbourhood, node

Limit = Annotated[int, Query(ge=1, le=500, description="at most so many")]
Offset = Annotated[int, Query(ge=0, le=10_000_000, description="how many to pass over")]
Identity = Annotated[str, Query(min_length=1, max_length=1000)]


class RetrieveRequest(RetrievalOptions):
    """A question, and how to look for its evidence."""

    query: Text = Field(min_length=1, description="the question")
    model: Annotated[Text, StringConstraints(max_length=200)] | None = Field(
        None, description="the model that `use_model` may ask; the base model when left out"
    )


def retrieval_router(services: Services) -> APIRouter:
    """Routes over `services`."""
    router = APIRouter(prefix="/v1", tags=["retrieval"])

    @router.post("/retrieve")
    async def retrieve(request: RetrieveRequest, seen: SeenCollection) -> Retrieved:
        """The evidence for a question, best first, with the paths that led to it. Works while the model is away."""
        backend, retriever = services.backend, services.retriever
        if request.model is not None and request.model not in backend.models:
            raise unknown_model(request.model, backend.models)
        question = retriever.check_question(request.query)
        settings = retriever.settings_of(request)
        model = None
        if request.use_model:
            await backend.check()
            model = backend.language_model(request.model or next(iter(backend.models), ""))
        evidence = await retriever.find(question, settings, model, seen.generation)
        return retrieved(evidence, seen.generation)

    _add_graph_routes(router)
    return router


def _add_graph_routes(router: APIRouter) -> None:
    @router.get("/graph/neighbourhood")
    def graph_neighbourhood(seen: SeenCollection, kind: NodeKind, id: Identity, limit: Limit = 60) -> Neighbourhood:  # noqa: A002
        """A node of the graph by kind and id (of an entity its text will do), its neighbours and the edges to them."""
        current = seen.generation
        row = current.row(kind, id)
        if row is None and kind == "entity":
            row = current.row(kind, content_id("entity", entity_key(id)))
        if row is None:
            raise ApiError(404, "no_such_node", f"the index has no {kind} {id[:80]!r}", "id")
        return neighbourhood(current.index, kind, row, limit)

    @router.get("/graph/entities")
    def graph_entities(
        seen: SeenCollection, q: Annotated[str, Query(max_length=200)] = "", limit: Limit = 50
    ) -> list[GraphNode]:
        """Entities that hold the letters of `q`, the most mentioned first."""
        index = seen.generation.index
        mentions_E = index.entity_proposition_EN.indptr[1:] - index.entity_proposition_EN.indptr[:-1]
        sought = q.casefold().strip()
        held = [row for row, text in enumerate(index.data.entity_texts) if sought in text.casefold()]
        held.sort(key=lambda row: (-int(mentions_E[row]), row))
        return [node(index, "entity", row) for row in held[:limit]]

    @router.get("/graph/layers")
    def graph_layers(seen: SeenCollection) -> list[Layer]:
        """The layers of the hierarchy, the lowest first."""
        layers = seen.generation.index.data.summary_layer_S.tolist()
        return [Layer(layer=layer, summaries=layers.count(layer)) for layer in sorted(set(layers))]

    @router.get("/graph/summaries")
    def graph_summaries(
        seen: SeenCollection, layer: Annotated[int, Query(ge=0, le=64)], limit: Limit = 50, offset: Offset = 0
    ) -> list[GraphNode]:
        """The summaries of a layer: of chunks in layer 0, of communities above."""
        index = seen.generation.index
        rows = [row for row, found in enumerate(index.data.summary_layer_S.tolist()) if found == layer]
        return [node(index, "summary", row) for row in rows[offset : offset + limit]]
