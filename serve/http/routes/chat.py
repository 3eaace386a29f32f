"""/v1/chat/completions: prepare the prompt, have the model write (server/completion.py), check what it cites.

In a stream of server-sent events reasoning and answer of every choice come as they are written, the citations at the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from serve.engines.chat_backend import Body
from serve.http.encoding import DONE, SSE, AsciiJSONResponse, event
from serve.http.errors import ApiError
from serve.http.keys import access_of
from serve.http.openapi import STREAMED
from serve.server.chat_request import ChatRequest
from serve.server.completion import PreparedRequest, complete, feed_parts, open_stream, parts_of, prepare
from serve.server.services import Services
from serve.stream import REASONING, REASONING_FIELDS, MessageParts


class CitedStream:
    """One streamed completion of a prepared request. Without retrieval texts pass as they are.

    `base` is the address that links to passages begin with.
    """

    def __init__(
        self, services: Services, prepared: PreparedRequest, include_usage: bool, arrived_s: float, base: str
    ) -> None:
        self._services, self._prepared, self._metrics = services, prepared, services.metrics
        self._include_usage, self._arrived_s, self._base = include_usage, arrived_s, base
        self._parts: dict[int, MessageParts] = {}
        self._began = False

    async def events(self, chunks: AsyncIterator[dict[str, Any]], model: str) -> AsyncIterator[bytes]:
        """The engine's `chunks` as events; closing this closes them, and with them the request to the engine."""
        head: dict[str, Any] = {}
        try:
            async with aclosing(chunks) as open_chunks:  # type: ignore[type-var]
                async for chunk in open_chunks:
                    head = {name: chunk.get(name) for name in ("id", "object", "created", "model")}
                    shown = await feed_parts(self._prepared, partial(self._shown, chunk, model))
                    if shown is not None:
                        yield event(shown)
            if self._prepared.retrieval is not None:
                choices = await asyncio.to_thread(self._citations)
                yield event({**head, "choices": choices, "retrieval": self._prepared.retrieval})
        except ApiError as problem:
            self._metrics.errors.labels(problem.code).inc()
            yield event(problem.body())
        yield DONE

    def _shown(self, chunk: dict[str, Any], model: str) -> dict[str, Any] | None:
        """A chunk as the client gets it; None when it has nothing to tell yet."""
        choices = [choice for choice in map(self._choice, chunk["choices"]) if choice is not None]
        if not self._began and any(map(_has_text, choices)):
            self._began = True
            self._metrics.first_token.labels(model).observe(time.perf_counter() - self._arrived_s)
        if not chunk["choices"]:
            return chunk if self._include_usage else None
        return {**chunk, "choices": choices} if choices else None

    def _choice(self, choice: dict[str, Any]) -> dict[str, Any] | None:
        """A choice with the text that can be shown now; None when that is nothing and there is nothing else in it."""
        if self._prepared.retrieval is None:
            return choice
        said = choice.get("delta") or {}
        index = choice.get("index", 0)
        if index not in self._parts:
            self._parts[index] = parts_of(self._services, self._prepared)
        parts = self._parts[index]
        shown = parts.feed(said)
        ended = choice.get("finish_reason") is not None
        if ended:
            shown = shown.then(parts.finish())
        delta = {name: value for name, value in said.items() if name not in ("content", *REASONING_FIELDS)}
        if shown.content or delta.get("role"):
            delta["content"] = shown.content
        if shown.reasoning:
            delta[REASONING] = shown.reasoning
        return {**choice, "delta": delta} if delta or ended or choice.get("logprobs") else None

    def _citations(self) -> list[dict[str, Any]]:
        """The choices of the last chunk: no text, the citations of each."""
        self._metrics.removed.inc(sum(len(parts.removed) for parts in self._parts.values()))
        return [
            {"index": index, "delta": parts.fields(self._base), "finish_reason": None}
            for index, parts in sorted(self._parts.items())
        ]


def _has_text(choice: dict[str, Any]) -> bool:
    delta = choice.get("delta") or {}
    return any(delta.get(name) for name in ("content", *REASONING_FIELDS))


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
    message = {name: value for name, value in said.items() if name not in REASONING_FIELDS}
    message |= {"content": shown.content if shown.content or not said.get("tool_calls") else None}
    message |= {REASONING: shown.reasoning, **parts.fields(base)}
    return {**choice, "message": message}
