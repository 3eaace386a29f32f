"""A completion as it is written, as server-sent events: every choice through its own citation gate, the citations at the end."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

from graph.types import Excerpt
from serve.http.citations import CitationGate, cited_fields
from serve.http.encoding import event
from serve.http.errors import ApiError
from serve.http.metrics import Metrics, timed

DONE = b"data: [DONE]\n\n"


class CitedStream:
    """One streamed completion. Without `retrieval` (None) texts pass as they are."""

    def __init__(
        self,
        metrics: Metrics,
        excerpts: Sequence[Excerpt],
        retrieval: dict[str, Any] | None,
        include_usage: bool,
        arrived_s: float,
    ) -> None:
        self._metrics, self._excerpts, self._retrieval = metrics, excerpts, retrieval
        self._include_usage, self._arrived_s = include_usage, arrived_s
        self._gates: dict[int, CitationGate] = {}
        self._began = False

    async def events(self, chunks: AsyncIterator[dict[str, Any]], model: str) -> AsyncIterator[bytes]:
        """The engine's `chunks` as events; closing this closes them, and with them the request to the engine."""
        head: dict[str, Any] = {}
        try:
            with timed(self._metrics.generation.labels(model)):
                async with aclosing(chunks) as open_chunks:  # type: ignore[type-var]
                    async for chunk in open_chunks:
                        head = {name: chunk.get(name) for name in ("id", "object", "created", "model")}
                        shown = self._shown(chunk, model)
                        if shown is not None:
                            yield event(shown)
            if self._retrieval is not None:
                yield event({**head, "choices": self._citations(), "retrieval": self._retrieval})
        except ApiError as problem:
            self._metrics.errors.labels(problem.code).inc()
            yield event(problem.body())
        yield DONE

    def _shown(self, chunk: dict[str, Any], model: str) -> dict[str, Any] | None:
        """A chunk as the client gets it; None when it has nothing to tell yet."""
        usage = chunk.get("usage")
        choices = [choice for choice in map(self._choice, chunk["choices"]) if choice is not None]
        if any((choice.get("delta") or {}).get("content") for choice in choices) and not self._began:
            self._began = True
            self._metrics.first_token.labels(model).observe(time.perf_counter() - self._arrived_s)
        if not chunk["choices"]:
            self._metrics.count_tokens(model, usage)
            return chunk if self._include_usage else None
        return {**chunk, "choices": choices} if choices else None

    def _choice(self, choice: dict[str, Any]) -> dict[str, Any] | None:
        """A choice with the text that can be shown now; None when that is nothing and there is nothing else in it."""
        if self._retrieval is None:
            return choice
        delta = dict(choice.get("delta") or {})
        gate = self._gates.setdefault(choice.get("index", 0), CitationGate(len(self._excerpts)))
        ended = choice.get("finish_reason") is not None
        written = delta.get("content")
        text = (gate.feed(written) if isinstance(written, str) else "") + (gate.finish() if ended else "")
        if isinstance(written, str) or text:
            delta["content"] = text
        if (
            not text
            and not ended
            and not delta.get("role")
            and set(delta) <= {"content"}
            and not choice.get("logprobs")
        ):
            return None
        return {**choice, "delta": delta}

    def _citations(self) -> list[dict[str, Any]]:
        """The choices of the last chunk: no text, the citations of each."""
        self._metrics.removed.inc(sum(len(gate.removed) for gate in self._gates.values()))
        return [
            {"index": index, "delta": cited_fields(gate, self._excerpts), "finish_reason": None}
            for index, gate in sorted(self._gates.items())
        ]
