"""Telemetry: metrics for Prometheus at /metrics, one registry per server, and spans of each request for OpenTelemetry.

With a collector, otlp.py sends the spans; without one the same calls do nothing, and OpenTelemetry is not imported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from fastapi import FastAPI
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

SECONDS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)


class Metrics:
    """The metrics; their names begin with modegraph_."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        counter = partial(Counter, namespace="modegraph", registry=self.registry)
        gauge = partial(Gauge, namespace="modegraph", registry=self.registry)
        histogram = partial(Histogram, namespace="modegraph", buckets=SECONDS, registry=self.registry)
        self.requests = counter("requests", "Requests, by route and status", ["route", "status"])
        self.key_requests = counter("key_requests", "Requests of each key, by status", ["key", "status"])
        self.key_tokens = counter("key_tokens", "Tokens of each key, by kind (prompt, completion)", ["key", "kind"])
        self.errors = counter("errors", "Requests that failed, by kind", ["kind"])
        self.waiting = gauge("requests_waiting", "Admitted requests that are not being processed yet")
        self.running = gauge("requests_running", "Requests being processed")
        self.retrieval = histogram("retrieval_seconds", "Time spent finding the evidence", ["mode"])
        self.first_token = histogram(
            "time_to_first_token_seconds", "From the arrival of a request to its first streamed text", ["model"]
        )
        self.generation = histogram("generation_seconds", "Time spent in the model", ["model"])
        self.tokens = counter("tokens", "Tokens, by model and kind (prompt, completion)", ["model", "kind"])
        self.cache = counter("retrieval_cache", "Retrievals, by whether the result was cached (hit, miss)", ["outcome"])
        self.removed = counter("citations_removed", "Citations of passages that do not exist")
        self.rewritten = counter(
            "questions_rewritten", "Questions with a history, by the origin of the search query", ["by"]
        )
        self.generation_number = gauge("index_generation", "Generation of the index in use", ["collection"])
        self.swaps = counter(
            "index_swaps", "Loads of a changed index (done, failed; a repeated error counts once)", ["outcome"]
        )

    def count_tokens(self, model: str, key: str, usage: Any) -> None:
        """Add the tokens of a completion requested with the key `key`; do nothing when the engine reports no usage."""
        if not isinstance(usage, dict):
            return
        for kind in ("prompt", "completion"):
            tokens = usage.get(f"{kind}_tokens") or 0
            self.tokens.labels(model, kind).inc(tokens)
            if key:
                self.key_tokens.labels(key, kind).inc(tokens)


Values = Mapping[str, str | int | bool]
MODE, K = "modegraph.retrieval.mode", "modegraph.retrieval.k"
CACHED, PASSAGES = "modegraph.retrieval.cached", "modegraph.retrieval.passages"
GENERATION = "modegraph.index.generation"
MODEL, PROMPT_TOKENS, ANSWER_TOKENS = "gen_ai.request.model", "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"
"""Names from OpenTelemetry's conventions for generative models."""
ERROR = "error.type"
SPAN_ATTRIBUTES = frozenset({MODE, K, CACHED, PASSAGES, GENERATION, MODEL, PROMPT_TOKENS, ANSWER_TOKENS, ERROR})


class Span:
    """A timed piece of work; this base class discards it."""

    def set(self, values: Values) -> None:
        """Add attributes: numbers and names that modegraph defines, never the text of a question, a passage or an answer."""


class Tracing:
    """The interface of tracing, for a server without a collector: here, spans are discarded."""

    def watch(self, app: FastAPI) -> None:
        """Record each request to `app`, except to /health, /ready and /metrics, as a span, a child of its `traceparent`."""

    @contextmanager
    def span(self, name: str, values: Values) -> Iterator[Span]:
        """A child of the request's span, for as long as the block runs; it is marked as failed if the block raises."""
        yield Span()

    def close(self) -> None:
        """Send the remaining spans, and wait until they are sent or given up."""


def usage_values(usage: object) -> Values:
    """The token counts of a completion as span attributes; none when the engine reports no usage.

    >>> usage_values({"prompt_tokens": 7, "completion_tokens": 3})
    {'gen_ai.usage.input_tokens': 7, 'gen_ai.usage.output_tokens': 3}
    """
    if not isinstance(usage, dict):
        return {}
    named = {PROMPT_TOKENS: usage.get("prompt_tokens"), ANSWER_TOKENS: usage.get("completion_tokens")}
    return {name: tokens for name, tokens in named.items() if isinstance(tokens, int)}
