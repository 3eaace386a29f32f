"""/v1/vector_stores: each collection as a vector store of OpenAI's, its documents the files; searched without a language model."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Request

from serve.http.routes.collections import STORE
from serve.http.routes.services import Caller, Services
from serve.http.search.vector_store_request import StoreSearchRequest
from serve.http.search.vector_store_views import FoundFiles, VectorStore, VectorStores, found_files, vector_store
from serve.http.shared.access import access_of


def vector_stores_router(services: Services) -> APIRouter:
    """Routes over `services`."""
    router = APIRouter(prefix="/v1/vector_stores", tags=["retrieval"])
    collections, retriever = services.collections, services.retriever

    @router.get("")
    async def vector_stores(access: Caller) -> VectorStores:
        """The collections, each a store."""
        seen = [await collections.seen(access, name) for name in collections.names(access)]
        stores = [await retriever.in_thread(partial(vector_store, each.name, each.generation)) for each in seen]
        ends = (stores[0].id, stores[-1].id) if stores else (None, None)
        return VectorStores(data=stores, first_id=ends[0], last_id=ends[1])

    @router.get("/{vector_store_id}")
    async def store(vector_store_id: str, access: Caller) -> VectorStore:
        """One collection as a store."""
        seen = await collections.seen(access, vector_store_id, STORE)
        return await retriever.in_thread(partial(vector_store, seen.name, seen.generation))

    @router.post("/{vector_store_id}/search")
    async def search(vector_store_id: str, request: StoreSearchRequest, http: Request) -> FoundFiles:
        """The passages for a query, best first, by the server's own mode. Works while the model is away."""
        seen = await collections.seen(access_of(http), vector_store_id, STORE)
        question = retriever.check_question(request.question())
        evidence = await retriever.find(question, retriever.settings_of(request.retrieval()), None, seen.generation)
        return found_files(evidence, seen.generation, services.page_url(http, seen))

    return router
