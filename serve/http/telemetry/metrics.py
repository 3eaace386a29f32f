"""What Prometheus reads at /metrics: seconds, tokens, the queue, cache hits and errors by kind. One registry a server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

SECONDS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)


class Metrics:
    """The instruments; their names begin with modegraph_."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter(
            "modegraph_requests", "Requests, by route and status", ["route", "status"], registry=registry
        )
        self.key_requests = Counter(
            "modegraph_key_requests", "Requests of each key, by status", ["key", "status"], registry=registry
        )
        self.key_tokens = Counter(
            "modegraph_key_tokens",
            "Tokens of each key, by kind (prompt, completion)",
            ["key", "kind"],
            registry=registry,
        )
        self.errors = Counter("modegraph_errors", "Requests that failed, by kind", ["kind"], registry=registry)
        self.waiting = Gauge("modegraph_requests_waiting", "Requests let in whose turn has not come", registry=registry)
        self.running = Gauge("modegraph_requests_running", "Requests at work", registry=registry)
        self.retrieval = Histogram(
            "modegraph_retrieval_seconds", "Finding the evidence", ["mode"], buckets=SECONDS, registry=registry
        )
        self.first_token = Histogram(
            "modegraph_time_to_first_token_seconds",
            "From the arrival of a streamed request to its first text",
            ["model"],
            buckets=SECONDS,
            registry=registry,
        )
        self.generation = Histogram(
            "modegraph_generation_seconds", "The model's own time", ["model"], buckets=SECONDS, registry=registry
        )
        self.tokens = Counter(
            "modegraph_tokens", "Tokens, by model and kind (prompt, completion)", ["model", "kind"], registry=registry
        )
        self.cache = Counter(
            "modegraph_retrieval_cache", "Retrievals looked up in the cache, by outcome", ["outcome"], registry=registry
        )
        self.removed = Counter(
            "modegraph_citations_removed", "Citations of passages that were not there", registry=registry
        )
        self.rewritten = Counter(
            "modegraph_questions_rewritten",
            "Questions with a history, by what made them stand alone",
            ["by"],
            registry=registry,
        )
        self.generation_number = Gauge(
            "modegraph_index_generation", "Generation of the index in use", ["collection"], registry=registry
        )
        self.swaps = Counter(
            "modegraph_index_swaps", "Times a newer index was loaded, by outcome", ["outcome"], registry=registry
        )

    def count_tokens(self, model: str, key: str, usage: Any) -> None:
        """Add what an engine says that a completion took, asked for by the key of that name; nothing when it does not say."""
        if not isinstance(usage, dict):
            return
        for kind in ("prompt", "completion"):
            tokens = usage.get(f"{kind}_tokens") or 0
            self.tokens.labels(model, kind).inc(tokens)
            if key:
                self.key_tokens.labels(key, kind).inc(tokens)


@contextmanager
def timed(histogram: Histogram) -> Iterator[None]:
    """Observe the seconds of the block, however it ends."""
    started = time.perf_counter()
    try:
        yield
    finally:
        histogram.observe(time.perf_counter() - started)
