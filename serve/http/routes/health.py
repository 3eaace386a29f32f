"""/health: the process answers. /ready: the index and the model answer too. /metrics: for Prometheus. /v1/models: the available models."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel
from starlette.responses import Response

from serve.http.encoding import AsciiJSONResponse
from serve.http.errors import ApiError
from serve.http.keys import FULL_ACCESS
from serve.server.services import Caller, Services


class Health(BaseModel):
    status: Literal["ok"] = "ok"


class Ready(BaseModel):
    """What is available to the caller: collections, their total size, models, and rights to write, to send feedback and to read runs.

    `index` and `generation` are null unless there is a single collection.
    """

    status: Literal["ready"] = "ready"
    index: str | None
    generation: int | None
    documents: int
    passages: int
    collections: tuple[str, ...]
    models: tuple[str, ...]
    writable: bool
    feedback: bool
    runs: bool


class Model(BaseModel):
    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "modegraph"


class Models(BaseModel):
    object: Literal["list"] = "list"
    data: list[Model]


def health_router(services: Services) -> APIRouter:
    router = APIRouter(tags=["server"])

    @router.get("/health")
    async def health() -> Health:
        """The process answers."""
        return Health()

    @router.get(
        "/ready",
        response_model=Ready,
        responses={503: {"description": "the model's server does not answer, or this server is stopping"}},
    )
    async def ready(access: Caller) -> Ready | Response:
        """The index and the model answer; 503 while the model does not answer, with the same fields except `status`, and once the server is stopping."""
        if services.stopping.is_set():
            raise ApiError(503, "stopping", "this server is stopping: send new requests to another server")
        names = services.collections.names(access)
        generations = [(await services.collections.view(access, name)).generation for name in names]
        single = generations[0] if len(generations) == 1 else None
        state = Ready(
            index=single.identity if single is not None else None,
            generation=single.number if single is not None else None,
            documents=sum(len(generation.index.data.document_sources) for generation in generations),
            passages=sum(len(generation.index.data.passage_ids) for generation in generations),
            collections=names,
            models=services.model_names(access),
            writable=services.settings.writable and "write" in access.scopes,
            feedback=services.settings.feedback and "read" in access.scopes,
            runs=services.settings.show_runs is not None and access == FULL_ACCESS,
        )
        try:
            await services.backend.check()
        except ApiError as problem:
            content = {**state.model_dump(exclude={"status"}), **problem.body()}
            return AsciiJSONResponse(content, problem.status, {**problem.headers, "x-error-code": problem.code})
        return state

    @router.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Metrics in Prometheus' text format."""
        return Response(generate_latest(services.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @router.get("/v1/models")
    async def models(access: Caller) -> Models:
        """The models, the base model first, then its adapters; with several collections, one entry per model and collection: MODEL@COLLECTION."""
        return Models(data=[Model(id=name) for name in services.model_names(access)])

    @router.get("/v1/models/{model:path}")
    async def model(model: str, access: Caller) -> Model:
        """One model by name."""
        services.resolve_model(access, model)
        return Model(id=model)

    return router
