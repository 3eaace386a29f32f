"""/v1/chat/completions: prepare the prompt (prepare.py), have the model write, check what it cites."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from serve.http.backends.backend import Body
from serve.http.routes.chat_request import ChatRequest
from serve.http.routes.description import STREAMED
from serve.http.routes.generate import complete, open_stream, parts_of
from serve.http.routes.parts import REASONING, THOUGHTS
from serve.http.routes.prepare import PreparedRequest, prepare
from serve.http.routes.services import Services
from serve.http.routes.streaming import CitedStream
from serve.http.shared.access import access_of
from serve.http.shared.encoding import SSE, AsciiJSONResponse


def chat_router(services: Services) -> APIRouter:
    """The route over `services`."""
    router = APIRouter(prefix="/v1", tags=["chat"])

    @router.post("/chat/completions", response_model=None, responses=STREAMED)
    async def chat_completions(request: ChatRequest, http: Request) -> Response:
        """A chat completion from the passages of the index.

        The message has extra fields: `reasoning_content` (what the model wrote on the way to the answer), `citations` (number, title,
        source, start, end, text of each passage that it cites), `annotations` (OpenAI's url_citation for each citation in the content)
        `removed` (cited numbers that no passage had) and `unsupported` (sentences that the passages do not seem to say: part, text, start,
        end, probability, cited, missing; gone from the text with `retrieval.unsupported` drop) and `answered` (false where the model wrote no
        answer: the content says so and quotes the nearest passage); the completion has `retrieval`. In a stream, reasoning and answer come as they are written, the citations in the delta of a last chunk.
        """
        arrived_s = time.perf_counter()
        prepared = await prepare(services, request, access_of(http))
        base = services.page_url(http, prepared.seen)
        if request.stream:
            usage = request.stream_options is not None and bool(request.stream_options.include_usage)
            prepared, chunks = await open_stream(services, prepared)
            stream = CitedStream(services, prepared, usage, arrived_s, base)
            return StreamingResponse(stream.events(chunks, request.model), media_type=SSE)
        return AsciiJSONResponse(await checked_completion(services, prepared, base))

    return router


async def checked_completion(services: Services, prepared: PreparedRequest, base: str) -> dict[str, Any]:
    """The engine's completion, its choices checked and the extra fields added."""
    prepared, made = await complete(services, prepared)
    if prepared.retrieval is None:
        return made
    # Reading sentences against passages takes a millisecond or two each: not in the event loop.
    choices = await asyncio.to_thread(lambda: [_checked(services, each, prepared, base) for each in made["choices"]])
    return {**made, "choices": choices, "retrieval": prepared.retrieval}


def _checked(services: Services, choice: Body, prepared: PreparedRequest, base: str) -> dict[str, Any]:
    """A choice with answer and reasoning apart; where the model calls a tool and says nothing, its content stays null."""
    said: Mapping[str, Any] = choice.get("message") or {}
    parts = parts_of(services, prepared)
    shown = parts.feed(said).then(parts.finish())
    services.metrics.removed.inc(len(parts.removed))
    message = {name: value for name, value in said.items() if name not in THOUGHTS}
    message |= {"content": shown.content if shown.content or not said.get("tool_calls") else None}
    message |= {REASONING: shown.reasoning, **parts.fields(base)}
    return {**choice, "message": message}
