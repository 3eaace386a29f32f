"""/v1/vector_stores: the index as a vector store of OpenAI's, its documents the files; searched without a language model."""

from __future__ import annotations

from fastapi import APIRouter, Request

from serve.http.routes.services import Services
from serve.http.search.vector_store_request import StoreSearchRequest, check_store, store_id
from serve.http.search.vector_store_views import FoundFiles, VectorStore, VectorStores, found_files, vector_store


def vector_stores_router(services: Services) -> APIRouter:
    """Routes over `services`."""
    router = APIRouter(prefix="/v1/vector_stores", tags=["retrieval"])
    live, retriever = services.live, services.retriever

    @router.get("")
    def vector_stores() -> VectorStores:
        """The one store that there is: the index."""
        name = store_id(live.folder)
        return VectorStores(data=[vector_store(name, live.current)], first_id=name, last_id=name)

    @router.get("/{vector_store_id}")
    def store(vector_store_id: str) -> VectorStore:
        """The index as a store."""
        check_store(vector_store_id, live.folder)
        return vector_store(vector_store_id, live.current)

    @router.post("/{vector_store_id}/search")
    async def search(vector_store_id: str, request: StoreSearchRequest, http: Request) -> FoundFiles:
        """The passages for a query, best first, by the server's own mode. Works while the model is away."""
        check_store(vector_store_id, live.folder)
        question = retriever.check_question(request.question())
        settings, generation = retriever.settings_of(request.retrieval()), live.current
        evidence = await retriever.find(question, settings, None, generation)
        return found_files(evidence, generation, services.base_url(http))

    return router
