"""A completion as it is written, as server-sent events: every choice parted and its citations checked, these at the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import partial
from typing import Any

from serve.http.routes.generate import parted, parts_of
from serve.http.routes.parts import REASONING, THOUGHTS, MessageParts
from serve.http.routes.prepare import PreparedRequest
from serve.http.routes.services import Services
from serve.http.shared.encoding import DONE, event
from serve.http.shared.errors import ApiError


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
                    shown = await parted(self._prepared, partial(self._shown, chunk, model))
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
        if not self._began and any(map(_says_something, choices)):
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
        delta = {name: value for name, value in said.items() if name not in ("content", *THOUGHTS)}
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


def _says_something(choice: dict[str, Any]) -> bool:
    delta = choice.get("delta") or {}
    return any(delta.get(name) for name in ("content", *THOUGHTS))
