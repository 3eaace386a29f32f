"""/v1/responses: passed to the engine as it stands, where it has it; without retrieval."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from serve.http.services import Services

_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["model"],
                    "properties": {"model": {"type": "string"}},
                    "additionalProperties": True,
                }
            }
        },
    }
}


def responses_router(services: Services) -> APIRouter:
    """The route over `services`."""
    router = APIRouter(prefix="/v1", tags=["chat"])

    @router.post("/responses", openapi_extra=_BODY, response_model=None)
    async def responses(request: Request) -> Response:
        """OpenAI's Responses protocol, answered by the engine itself; 404 where the engine has none."""
        return await services.backend.respond(await request.body())

    return router
