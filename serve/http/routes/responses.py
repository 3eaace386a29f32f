"""/v1/responses: passed to the engine, field by field, where it has it; without retrieval."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from serve.http.backends.engine_fields import EngineFields
from serve.http.routes.description import STREAMED
from serve.http.routes.services import Services
from serve.http.shared.encoding import Text
from serve.http.shared.errors import ApiError, unknown_model

KINDS = frozenset(
    [
        "message",
        "function_call",
        "function_call_output",
        "reasoning",
        "input_text",
        "output_text",
        "text",
        "refusal",
        "summary_text",
        "reasoning_text",
    ]
)
"""What an input is made of: texts, and calls of the client's own functions."""
NAMES = frozenset({"type", "role", "id", "status", "call_id", "name"})
TEXTS = frozenset({"text", "refusal", "arguments"})
NESTED = frozenset({"content", "output", "summary"})
"""Fields of an item that are a text or hold further items."""


class ResponsesRequest(EngineFields):
    """What /v1/responses takes. Nothing is kept: a conversation is given in whole."""

    input: Text | Annotated[list[dict[str, Any]], Field(max_length=1000)]
    instructions: Text | None = None
    max_output_tokens: int | None = Field(None, ge=1, le=1_000_000)
    max_tool_calls: int | None = Field(None, ge=0)
    text: dict[str, Any] | None = None
    reasoning: dict[str, Text] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    include: list[Literal["message.output_text.logprobs"]] | None = None
    background: Literal[False] | None = None

    def passed_on(self, escape: Callable[[str], str]) -> dict[str, Any]:
        """The request for the engine, its texts without special tokens; ApiError 400 for an input that is more than text."""
        fields = self.given()
        fields["input"] = plain(self.input, escape, "input")
        if self.instructions is not None:
            fields["instructions"] = escape(self.instructions)
        return {**fields, "store": False}


def plain(value: Any, escape: Callable[[str], str], place: str) -> Any:
    """An input, or the content of one of its items: texts, special tokens escaped; ApiError 400 naming the place of anything else."""
    if isinstance(value, str):
        return escape(value)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ApiError(400, "bad_value", f"{place}: expected a text or a list of objects", place)
    return [_item(item, escape, f"{place}.{number}") for number, item in enumerate(value)]


def _item(item: dict[str, Any], escape: Callable[[str], str], place: str) -> dict[str, Any]:
    if item.get("type", "message") not in KINDS:
        told = f"{place}.type: this server passes on text alone: no images, files or tools of the engine's own"
        raise ApiError(400, "not_supported", told, f"{place}.type")
    made: dict[str, Any] = {}
    for name, value in item.items():
        if name in NESTED and value is not None:
            made[name] = plain(value, escape, f"{place}.{name}")
        elif name in NAMES | TEXTS and isinstance(value, str):
            made[name] = escape(value) if name in TEXTS else value
    return made | ({"annotations": []} if item.get("type") == "output_text" else {})


def responses_router(services: Services) -> APIRouter:
    """The route over `services`."""
    router = APIRouter(prefix="/v1", tags=["chat"])

    @router.post("/responses", response_model=None, responses=STREAMED)
    async def responses(request: ResponsesRequest) -> Response:
        """OpenAI's Responses protocol, answered by the engine itself, from text alone; 404 where the engine has none."""
        backend = services.backend
        if request.model not in backend.models:
            raise unknown_model(request.model, backend.models)
        return await backend.respond(request.passed_on(backend.escape_special_tokens))

    return router
