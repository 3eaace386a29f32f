"""/v1/chat/completions: prepare the prompt, call the model (serve/server/completion.py), check the citations.

In a stream of server-sent events, the reasoning and answer of every choice arrive as they are generated, the citations at the end."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from serve.engines.chat_backend import Body
from serve.http.auth import STREAMABLE_RESPONSES
from serve.http.encoding import DONE, SSE, AsciiJSONResponse, event
from serve.http.errors import ApiError
from serve.http.keys import access_of
from serve.server.chat_request import ChatRequest
from serve.server.completion import PreparedRequest, complete, feed_parts, open_stream, parts_of, prepare
from serve.server.services import Services
from serve.stream import REASONING, REASONING_FIELDS, MessageDelta, MessageParts


class CitedStream:
    """One streamed completion of a prepared request. Without retrieval, the text is passed on unchanged.

    `base` is the base URL of links to passages.
    """

    def __init__(
        self, services: Services, prepared: PreparedRequest, include_usage: bool, arrived_s: float, base: str
    ) -> None:
        self._prepared, self._metrics = prepared, services.metrics
        self._include_usage, self._arrived_s, self._base = include_usage, arrived_s, base
        self._parts: defaultdict[int, MessageParts] = defaultdict(partial(parts_of, services, prepared))
        self._has_begun = False

    async def events(self, chunks: AsyncIterator[dict[str, Any]], model: str) -> AsyncIterator[bytes]:
        """The engine's `chunks` as events; closing the iterator also closes the request to the engine."""
        head: dict[str, Any] = {}
        try:
            async with aclosing(chunks) as open_chunks:  # type: ignore[type-var]
                async for chunk in open_chunks:
                    head = {name: chunk.get(name) for name in ("id", "object", "created", "model")}
                    client_chunk = await feed_parts(self._prepared, partial(self._client_chunk, chunk, model))
                    if client_chunk is not None:
                        yield event(client_chunk)
            if self._prepared.retrieval is not None:
                choices = await asyncio.to_thread(self._citations)
                yield event({**head, "choices": choices, "retrieval": self._prepared.retrieval})
        except ApiError as problem:
            self._metrics.errors.labels(problem.code).inc()
            yield event(problem.body())
        yield DONE

    def _client_chunk(self, chunk: dict[str, Any], model: str) -> dict[str, Any] | None:
        """The chunk for the client; None when it has nothing to show yet."""
        choices = [choice for choice in map(self._client_choice, chunk["choices"]) if choice is not None]
        if not self._has_begun and any(map(_has_text, choices)):
            self._has_begun = True
            self._metrics.first_token.labels(model).observe(time.perf_counter() - self._arrived_s)
        if not chunk["choices"]:
            return chunk if self._include_usage else None
        return {**chunk, "choices": choices} if choices else None

    def _client_choice(self, choice: dict[str, Any]) -> dict[str, Any] | None:
        """A choice with the text that can be shown; None when it has neither text nor anything else."""
        if self._prepared.retrieval is None:
            return choice
        engine_delta = choice.get("delta") or {}
        parts = self._parts[choice.get("index", 0)]
        shown = parts.feed(engine_delta)
        has_ended = choice.get("finish_reason") is not None
        if has_ended:
            shown = shown.then(parts.finish())
        delta = {name: value for name, value in engine_delta.items() if name not in ("content", *REASONING_FIELDS)}
        if delta.get("role"):
            delta["content"] = ""
        delta |= _shown_texts(shown)
        return {**choice, "delta": delta} if delta or has_ended or choice.get("logprobs") else None

    def _citations(self) -> list[dict[str, Any]]:
        """The choices of the last chunk, with the extra fields, and with the rest of the text if the engine sent no finish reason."""
        choices = []
        for index, parts in sorted(self._parts.items()):
            rest = _shown_texts(parts.finish())
            self._metrics.removed.inc(len(parts.removed))
            choices.append({"index": index, "delta": {**rest, **parts.fields(self._base)}, "finish_reason": None})
        return choices


def _shown_texts(shown: MessageDelta) -> dict[str, Any]:
    texts = {"content": shown.content, REASONING: shown.reasoning}
    return {name: text for name, text in texts.items() if text}


def _has_text(choice: dict[str, Any]) -> bool:
    delta = choice.get("delta") or {}
    return any(delta.get(name) for name in ("content", *REASONING_FIELDS))


def chat_router(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["chat"])

    @router.post("/chat/completions", response_model=None, responses=STREAMABLE_RESPONSES)
    async def chat_completions(request: ChatRequest, http: Request) -> Response:
        """A chat completion based on the passages of the index.

        The message has extra fields: `reasoning_content` (the model's reasoning before the answer), `citations` (number, title, source,
        start, end, text of each cited passage; `quotes`, its sentences that best support those of the answer; `attributed`, true if the
        model cited nothing and modegraph found the passage), `annotations` (OpenAI's url_citation for each citation in the content),
        `removed` (cited numbers without a passage), `unsupported` (sentences that the passages do not seem to support: part, text, start,
        end, probability, cited, missing; removed from the text when `retrieval.unsupported` is drop), `not_checked` (sentences that cannot
        be judged, and why), `checked` (how many were judged; null if the check is off) and `answered` (false if the model wrote no
        answer: unless it called a tool or the request sets a format, the content says so and quotes the nearest passage). The completion has
        `retrieval`. In a stream, reasoning and answer arrive as they are generated, and the other fields in the delta of a last chunk.
        """
        arrived_s = time.perf_counter()
        prepared = await prepare(services, request, access_of(http))
        base = services.page_url(http, prepared.view)
        if request.stream:
            usage = request.stream_options is not None and bool(request.stream_options.include_usage)
            prepared, chunks = await open_stream(services, prepared)
            stream = CitedStream(services, prepared, usage, arrived_s, base)
            return StreamingResponse(stream.events(chunks, request.model), media_type=SSE)
        return AsciiJSONResponse(await checked_completion(services, prepared, base))

    return router


async def checked_completion(services: Services, prepared: PreparedRequest, base: str) -> dict[str, Any]:
    """The engine's completion with checked choices and the extra fields; without retrieval, unchanged."""
    prepared, completion = await complete(services, prepared)
    if prepared.retrieval is None:
        return completion
    # In a thread, because checking sentences would block other requests.
    choices = await asyncio.to_thread(
        lambda: [_checked_choice(services, choice, prepared, base) for choice in completion["choices"]]
    )
    return {**completion, "choices": choices, "retrieval": prepared.retrieval}


def _checked_choice(services: Services, choice: Body, prepared: PreparedRequest, base: str) -> dict[str, Any]:
    """A choice with answer and reasoning separated; if the model calls a tool and writes no text, the content stays null."""
    engine_message: Mapping[str, Any] = choice.get("message") or {}
    parts = parts_of(services, prepared)
    shown = parts.feed(engine_message).then(parts.finish())
    services.metrics.removed.inc(len(parts.removed))
    message = {name: value for name, value in engine_message.items() if name not in REASONING_FIELDS}
    message |= {"content": shown.content if shown.content or not engine_message.get("tool_calls") else None}
    message |= {REASONING: shown.reasoning, **parts.fields(base)}
    return {**choice, "message": message}
