"""/v1/responses: OpenAI's Responses protocol, answered from the index where the request has the tool file_search.

Without the tool the request reaches the engine, field by field, where the engine has the protocol.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from serve.http.answers.response_request import RESULTS, ResponsesRequest
from serve.http.answers.response_writer import Event, ResponseWriter
from serve.http.routes.description import STREAMED
from serve.http.routes.generate import Ended, open_stream, written
from serve.http.routes.parts import Shown
from serve.http.routes.prepare import PreparedRequest, prepare
from serve.http.routes.services import Services
from serve.http.search.vector_store_views import attributes
from serve.http.shared.access import access_of
from serve.http.shared.encoding import DONE, SSE, AsciiJSONResponse, named_event
from serve.http.shared.errors import ApiError


def responses_router(services: Services) -> APIRouter:
    """The route over `services`."""
    router = APIRouter(prefix="/v1", tags=["chat"])

    @router.post("/responses", response_model=None, responses=STREAMED)
    async def responses(request: ResponsesRequest, http: Request) -> Response:
        """A response from the passages of the index, by the tool `file_search`.

        Its items are the search (with `results`, if `include` asks for them), the reasoning and the message, whose annotations are
        `file_citation`. Without the tool the engine itself answers; 404 where it has no such protocol.
        """
        arrived_s, backend = time.perf_counter(), services.backend
        access = access_of(http)
        if not request.searches:
            name, _ = services.asked_model(access, request.model)
            plain = request.model_copy(update={"model": name})
            return await backend.respond(plain.passed_on(backend.escape_special_tokens))
        prepared = await prepare(services, request.as_chat(), access, request.searched_store())
        prepared, chunks = await open_stream(services, prepared)
        told = {**echoed(request), "retrieval": prepared.retrieval}
        writer = ResponseWriter(told, prepared.excerpts, services.page_url(http, prepared.seen))
        results = found(prepared) if RESULTS in (request.include or ()) else None
        events = response_events(writer, prepared, results, written(services, prepared, chunks, arrived_s))
        if request.stream:
            return StreamingResponse(_streamed(services, writer, events), media_type=SSE)
        return AsciiJSONResponse([event async for event in events][-1]["response"])

    return router


async def response_events(
    writer: ResponseWriter,
    prepared: PreparedRequest,
    results: list[dict[str, Any]] | None,
    told: AsyncIterator[Shown | Ended],
) -> AsyncIterator[Event]:
    """The events of a response, the last with the whole of it."""
    for event in writer.begin():
        yield event
    if prepared.prompt is not None and prepared.prompt.evidence.query:
        for event in writer.searched(prepared.prompt.evidence.query, results):
            yield event
    async for each in told:
        for event in writer.end(each) if isinstance(each, Ended) else writer.show(each):
            yield event


async def _streamed(services: Services, writer: ResponseWriter, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
    try:
        async for event in events:
            yield named_event(event)
    except ApiError as problem:
        services.metrics.errors.labels(problem.code).inc()
        yield named_event(writer.fail(problem))
    yield DONE


def found(prepared: PreparedRequest) -> list[dict[str, Any]]:
    """The passages of a search as results of file_search, best first."""
    if prepared.prompt is None or prepared.seen is None:
        return []
    current = prepared.seen.generation
    return [
        {
            "file_id": each.item.source,
            "filename": each.item.source,
            "score": each.score,
            "text": each.item.text,
            "attributes": attributes(current.metadata(each.item.source)),
        }
        for each in prepared.prompt.evidence.passages
    ]


def echoed(request: ResponsesRequest) -> dict[str, Any]:
    """What a response repeats of its request, and what holds where that does not say."""
    given = request.given()
    return {name: given.get(name, usual) for name, usual in USUAL.items()} | {"usage": None}


USUAL: dict[str, Any] = {
    "model": "",
    "instructions": None,
    "tools": [],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "truncation": "auto",
    "text": {"format": {"type": "text"}},
    "temperature": 0.0,
    "top_p": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "top_logprobs": 0,
    "reasoning": None,
    "user": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "previous_response_id": None,
    "store": False,
    "background": False,
    "service_tier": "default",
    "metadata": {},
    "safety_identifier": None,
    "prompt_cache_key": None,
}
