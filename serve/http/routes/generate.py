"""The engine's answer to a prepared request: whole, as its chunks, or as the text of one choice that can be shown so far."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from serve.http.backends.backend import TOO_LONG, Body
from serve.http.backends.canned import not_found
from serve.http.routes.parts import MessageParts, PlainParts, Shown, takes_form
from serve.http.routes.prepare import PreparedRequest
from serve.http.routes.services import Services
from serve.http.shared.errors import ApiError
from serve.http.telemetry.metrics import timed
from serve.http.telemetry.tracing import MODEL, usage_values

T = TypeVar("T")
Chunks = AsyncIterator[dict[str, Any]]


@dataclass(frozen=True)
class Ended:
    """How a text ended: why, as OpenAI names it, its tokens, the numbers that it cited and no passage had, what the passages do not support,
    and whether the model wrote an answer.
    """

    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    removed: tuple[int, ...]
    unsupported: list[dict[str, Any]]
    answered: bool


async def complete(services: Services, prepared: PreparedRequest) -> tuple[PreparedRequest, dict[str, Any]]:
    """The engine's completion, and of what: of less where it found the prompt too long."""
    model = prepared.body["model"]
    if prepared.is_empty_handed:
        made = not_found(prepared.body).completion()
    else:
        with (
            timed(services.metrics.generation.labels(model)),
            services.tracing.span("generate", {MODEL: model}) as span,
        ):
            prepared, made = await _asked(prepared, services.backend.complete)
            span.set(usage_values(made.get("usage")))
    services.metrics.count_tokens(model, prepared.key, made.get("usage"))
    return prepared, made


async def open_stream(services: Services, prepared: PreparedRequest) -> tuple[PreparedRequest, Chunks]:
    """The chunks of a completion, the last with its usage, and of what; what the engine refuses is raised here."""
    if prepared.is_empty_handed:
        return prepared, not_found(prepared.body).chunks()
    prepared, chunks = await _asked(prepared, services.backend.stream)
    return prepared, _measured(services, chunks, prepared.body["model"], prepared.key)


def parts_of(services: Services, prepared: PreparedRequest) -> MessageParts:
    """What takes the text of a choice of this request."""
    form = takes_form(prepared.body)
    return MessageParts(prepared.excerpts, form, prepared.unsupported, services.verifier, stand_in=True)


async def parted(prepared: PreparedRequest, take: Callable[[], T]) -> T:
    """What `take` makes of a piece; reading sentences against passages takes a millisecond or two each: not in the event loop."""
    return await asyncio.to_thread(take) if prepared.unsupported == "drop" else take()


async def written(
    services: Services, prepared: PreparedRequest, chunks: Chunks, arrived_s: float
) -> AsyncIterator[Shown | Ended]:
    """The text of the one choice of `chunks` as far as it is certain, its citations checked, and at last how it ended."""
    parts = parts_of(services, prepared) if prepared.prompt is not None else PlainParts()
    model, began, reason, usage = prepared.body["model"], False, "stop", dict[str, int]()
    async with aclosing(chunks) as open_chunks:  # type: ignore[type-var]
        async for chunk in open_chunks:
            usage = chunk.get("usage") or usage
            for choice in chunk["choices"]:
                reason = choice.get("finish_reason") or reason
                shown = await parted(prepared, partial(parts.feed, choice.get("delta") or {}))
                if not began and (shown.reasoning or shown.content):
                    began = True
                    services.metrics.first_token.labels(model).observe(time.perf_counter() - arrived_s)
                yield shown
    yield await parted(prepared, parts.finish)
    services.metrics.removed.inc(len(parts.removed))
    tokens = (usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0)
    yield Ended(reason, *tokens, parts.removed, await asyncio.to_thread(parts.unsupported), parts.answered)


async def _asked(prepared: PreparedRequest, ask: Callable[[Body], Awaitable[T]]) -> tuple[PreparedRequest, T]:
    """What the engine answers, and to what: where it finds the prompt too long, it is asked again with less of it."""
    while True:
        try:
            return prepared, await ask(prepared.body)
        except ApiError as problem:
            less = prepared.shorter() if problem.code == TOO_LONG else None
            if less is None:
                raise
            prepared = less


async def _measured(services: Services, chunks: Chunks, model: str, key: str) -> Chunks:
    """The engine's chunks as they are, the time and the tokens that they take counted and as a span."""
    with (
        timed(services.metrics.generation.labels(model)),
        services.tracing.span("generate", {MODEL: model}) as span,
    ):
        async with aclosing(chunks) as open_chunks:  # type: ignore[type-var]
            async for chunk in open_chunks:
                span.set(usage_values(chunk.get("usage")))
                services.metrics.count_tokens(model, key, chunk.get("usage"))
                yield chunk
