"""/v1/messages: Anthropic's Messages protocol, answered from the index."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from serve.http.answers.message_request import MessagesRequest
from serve.http.answers.message_writer import MessageWriter
from serve.http.routes.description import STREAMED
from serve.http.routes.generate import Ended, open_stream, written
from serve.http.routes.parts import Shown
from serve.http.routes.prepare import prepare
from serve.http.routes.services import Services
from serve.http.shared.access import access_of
from serve.http.shared.encoding import SSE, AsciiJSONResponse, named_event
from serve.http.shared.errors import ApiError


def messages_router(services: Services) -> APIRouter:
    """The route over `services`."""
    router = APIRouter(prefix="/v1", tags=["chat"])

    @router.post("/messages", response_model=None, responses=STREAMED)
    async def messages(request: MessagesRequest, http: Request) -> Response:
        """A message from the passages of the index, its blocks of text with `citations` of the type search_result_location.

        Beside Anthropic's fields the message has `retrieval`, `removed` (cited numbers that no passage had), `unsupported` (sentences that the
        passages do not seem to say) and `answered` (false where the model wrote no answer and a passage stands in its place), and takes `retrieval`.
        """
        arrived_s = time.perf_counter()
        prepared = await prepare(services, request.as_chat(), access_of(http))
        prepared, chunks = await open_stream(services, prepared)
        told = written(services, prepared, chunks, arrived_s)
        base = services.page_url(http, prepared.seen)
        writer = MessageWriter(request.model, prepared.retrieval, prepared.excerpts, base, request.thinks)
        if request.stream:
            return StreamingResponse(_streamed(services, writer, told), media_type=SSE)
        async for each in told:
            _ = writer.end(each) if isinstance(each, Ended) else writer.show(each)
        return AsciiJSONResponse(writer.message)

    return router


async def _streamed(
    services: Services, writer: MessageWriter, told: AsyncIterator[Shown | Ended]
) -> AsyncIterator[bytes]:
    for event in writer.begin():
        yield named_event(event)
    try:
        async for each in told:
            for event in writer.end(each) if isinstance(each, Ended) else writer.show(each):
                yield named_event(event)
    except ApiError as problem:
        services.metrics.errors.labels(problem.code).inc()
        yield named_event({"type": "error", **problem.body()})
