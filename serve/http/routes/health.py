"""/health: the process answers. /ready: index and model do too. /metrics: for Prometheus. /v1/models: what can be asked for."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel
from starlette.responses import Response

from serve.http.errors import ApiError
from serve.server.services import Caller, Services


class Health(BaseModel):
    status: Literal["ok"] = "ok"


class Ready(BaseModel):
    """What the caller can ask: the collections, how much they hold together, the models, and what it may change; `index` and `generation` of a single one."""

    status: Literal["ready"] = "ready"
    index: str | None
    generation: int | None
    documents: int
    passages: int
    collections: tuple[str, ...]
    models: tuple[str, ...]
    writable: bool
    feedback: bool


class Model(BaseModel):
    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "modegraph"


class Models(BaseModel):
    object: Literal["list"] = "list"
    data: list[Model]


def health_router(services: Services) -> APIRouter:
    """Routes over `services`."""
    router = APIRouter(tags=["server"])

    @router.get("/health")
    async def health() -> Health:
        """The process answers."""
        return Health()

    @router.get("/ready", responses={503: {"description": "the model's server does not answer, or this one stops"}})
    async def ready(access: Caller) -> Ready:
        """Index and model answer; 503 while the model does not, and once the server is told to stop."""
        if services.stopping.is_set():
            raise ApiError(503, "stopping", "this server is about to stop: send new requests to another")
        await services.backend.check()
        names = services.collections.names(access)
        seen = [(await services.collections.seen(access, name)).generation for name in names]
        only = seen[0] if len(seen) == 1 else None
        return Ready(
            index=only.identity if only is not None else None,
            generation=only.number if only is not None else None,
            documents=sum(len(each.index.data.document_sources) for each in seen),
            passages=sum(len(each.index.data.passage_ids) for each in seen),
            collections=names,
            models=services.model_names(access),
            writable=services.settings.writable and "write" in access.scopes,
            feedback=services.settings.feedback and "read" in access.scopes,
        )

    @router.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Counts and seconds in Prometheus' text form."""
        return Response(generate_latest(services.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @router.get("/v1/models")
    async def models(access: Caller) -> Models:
        """The models, the base first, then its adapters; where there are several collections, each model of each: MODEL@COLLECTION."""
        return Models(data=[Model(id=name) for name in services.model_names(access)])

    @router.get("/v1/models/{model:path}")
    async def model(model: str, access: Caller) -> Model:
        """One model by name."""
        services.asked_model(access, model)
        return Model(id=model)

    return router
