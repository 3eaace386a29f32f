"""/health: the process answers. /ready: index and model do too. /metrics: for Prometheus. /v1/models: what can be asked for."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel
from starlette.responses import Response

from serve.http.routes.services import Services
from serve.http.shared.errors import unknown_model


class Health(BaseModel):
    status: Literal["ok"] = "ok"


class Ready(BaseModel):
    """The index in use and the models that can be asked."""

    status: Literal["ready"] = "ready"
    index: str
    generation: int
    documents: int
    passages: int
    models: tuple[str, ...]


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

    @router.get("/ready", responses={503: {"description": "the model's server does not answer"}})
    async def ready() -> Ready:
        """Index and model answer; 503 while the model does not."""
        await services.backend.check()
        current = services.live.current
        data = current.index.data
        return Ready(
            index=current.identity,
            generation=current.number,
            documents=len(data.document_sources),
            passages=len(data.passage_ids),
            models=services.backend.models,
        )

    @router.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Counts and seconds in Prometheus' text form."""
        return Response(generate_latest(services.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @router.get("/v1/models")
    async def models() -> Models:
        """The models, the base first, then its adapters."""
        return Models(data=[Model(id=name) for name in services.backend.models])

    @router.get("/v1/models/{model:path}")
    async def model(model: str) -> Model:
        """One model by name."""
        if model not in services.backend.models:
            raise unknown_model(model, services.backend.models)
        return Model(id=model)

    return router
