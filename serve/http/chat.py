"""/v1/chat/completions: make the question stand alone, find the evidence, have the model write, check what it cites."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response, StreamingResponse

from graph.answer import answer_messages
from graph.context import build_context, token_budget
from graph.errors import UserError
from graph.retrieve.caller import ModelGone
from graph.types import Excerpt, Message
from serve.http.backend import Body
from serve.http.canned import not_found
from serve.http.chat_request import ChatRequest
from serve.http.citations import CitationGate, cited_fields
from serve.http.encoding import AsciiJSON
from serve.http.errors import ApiError, unknown_model
from serve.http.metrics import timed
from serve.http.rewrite import Question, rewrite
from serve.http.services import Services
from serve.http.streaming import CitedStream
from serve.http.tracing import MODEL, usage_values
from serve.http.views import spending

SSE = "text/event-stream"


@dataclass(frozen=True)
class Prepared:
    """A request ready for the engine: its body, the excerpts that may be cited, and what the client is told of the search."""

    body: dict[str, Any]
    excerpts: tuple[Excerpt, ...]
    retrieval: dict[str, Any] | None


def chat_router(services: Services) -> APIRouter:
    """The route over `services`."""
    router = APIRouter(prefix="/v1", tags=["chat"])

    @router.post("/chat/completions", response_model=None)
    async def chat_completions(request: ChatRequest) -> Response:
        """A chat completion from the passages of the index.

        The message has extra fields: `citations` (number, title, source, start, end, text of each passage that it cites), `removed`
        (cited numbers that no passage had), `answer` and `reason` (the text taken apart); the completion has `retrieval`. In a
        stream, the citations come in the delta of a last chunk.
        """
        arrived_s = time.perf_counter()
        if request.model not in services.backend.models:
            raise unknown_model(request.model, services.backend.models)
        prepared = await prepare(services, request)
        if request.stream:
            usage = request.stream_options is not None and bool(request.stream_options.include_usage)
            chunks = await _open_stream(services, prepared)
            stream = CitedStream(services.metrics, prepared.excerpts, prepared.retrieval, usage, arrived_s)
            return StreamingResponse(stream.events(chunks, request.model), media_type=SSE)
        return AsciiJSON(await _complete(services, prepared))

    return router


async def prepare(services: Services, request: ChatRequest) -> Prepared:
    """Search for what the request asks, and build the prompt that the models were trained on; without retrieval, only defuse."""
    backend, options = services.backend, request.retrieval
    fields = request.engine_fields(services.settings.max_answer_tokens)
    if not options.enabled:
        return Prepared({**fields, "messages": _defused(backend.defuse, request)}, (), None)
    retriever = services.retriever
    asked = retriever.check_question(request.question())
    settings = retriever.settings_of(options)
    history = request.history()
    model = backend.language_model(request.model)
    if history or options.use_model:
        await backend.check()
    question = await _stand_alone(services, history, asked, request.model)
    evidence = await retriever.find(question.text, settings, model if options.use_model else None)
    try:
        excerpts = build_context(
            evidence, settings.top_k, token_budget(settings.max_context_tokens, model.count_tokens)
        )
    except UserError as problem:
        raise ApiError(400, "bad_value", f"retrieval: {problem}") from None
    messages = _messages(question.text, excerpts, request.instructions(), backend.defuse)
    told = {"question": question.text, "rewritten_by": question.by, "excerpts": len(excerpts)}
    body = {"temperature": 0.0, **fields, "messages": messages}
    return Prepared(body, excerpts, {**told, **spending(evidence).model_dump()})


async def _stand_alone(services: Services, history: Sequence[Message], asked: str, model: str) -> Question:
    if not history:
        return Question(asked, "itself")
    work = partial(rewrite, history, asked, services.backend.language_model(model))
    try:
        question = await services.retriever.in_thread(work)
    except ModelGone:
        message = "the model's server went away while the question was read"
        raise ApiError(503, "model_gone", message, headers={"Retry-After": "5"}) from None
    services.metrics.rewritten.labels(question.by).inc()
    return question


def _messages(question: str, excerpts: Sequence[Excerpt], instructions: str, defuse: Any) -> list[dict[str, str]]:
    """The prompt of training (graph/answer.py), the client's own instructions after ours."""
    system, user = answer_messages(question, excerpts)
    told = f"{system.content}\n\n{instructions}" if instructions else system.content
    return [{"role": "system", "content": defuse(told)}, {"role": "user", "content": defuse(user.content)}]


def _defused(defuse: Any, request: ChatRequest) -> list[dict[str, Any]]:
    turns = [turn.model_dump(exclude_unset=True) for turn in request.messages]
    return [
        turn | ({"content": defuse(turn["content"])} if isinstance(turn.get("content"), str) else {}) for turn in turns
    ]


async def _open_stream(services: Services, prepared: Prepared) -> AsyncIterator[dict[str, Any]]:
    if prepared.retrieval is not None and not prepared.excerpts:
        return not_found(prepared.body).chunks()
    return _traced(services, await services.backend.stream(prepared.body), prepared.body["model"])


async def _traced(
    services: Services, chunks: AsyncIterator[dict[str, Any]], model: str
) -> AsyncIterator[dict[str, Any]]:
    """The engine's chunks as they are, the time and the tokens that they take as a span."""
    with services.tracing.span("generate", {MODEL: model}) as span:
        async with aclosing(chunks) as open_chunks:  # type: ignore[type-var]
            async for chunk in open_chunks:
                span.set(usage_values(chunk.get("usage")))
                yield chunk


async def _complete(services: Services, prepared: Prepared) -> dict[str, Any]:
    """The engine's completion, its choices checked and the extra fields added."""
    model = prepared.body["model"]
    if prepared.retrieval is not None and not prepared.excerpts:
        made = not_found(prepared.body).completion()
    else:
        with (
            timed(services.metrics.generation.labels(model)),
            services.tracing.span("generate", {MODEL: model}) as span,
        ):
            made = await services.backend.complete(prepared.body)
            span.set(usage_values(made.get("usage")))
    services.metrics.count_tokens(model, made.get("usage"))
    if prepared.retrieval is None:
        return made
    choices = [_checked(services, choice, prepared.excerpts) for choice in made["choices"]]
    return {**made, "choices": choices, "retrieval": prepared.retrieval}


def _checked(services: Services, choice: Body, excerpts: Sequence[Excerpt]) -> dict[str, Any]:
    gate = CitationGate(len(excerpts))
    message: Mapping[str, Any] = choice.get("message") or {}
    text = message.get("content")
    if isinstance(text, str):
        text = gate.feed(text) + gate.finish()
    services.metrics.removed.inc(len(gate.removed))
    return {**choice, "message": {**message, "content": text, **cited_fields(gate, excerpts)}}
