"""The spans of a request, for OpenTelemetry: what a route says of its work, sent by otlp.py where a collector is named.

Without one the same calls do nothing, and neither OpenTelemetry's SDK nor its exporter is imported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from fastapi import FastAPI

Values = Mapping[str, str | int | bool]
MODE, K = "modegraph.retrieval.mode", "modegraph.retrieval.k"
CACHED, PASSAGES = "modegraph.retrieval.cached", "modegraph.retrieval.passages"
GENERATION = "modegraph.index.generation"
MODEL, PROMPT_TOKENS, ANSWER_TOKENS = "gen_ai.request.model", "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"
"""As OpenTelemetry's conventions for generative models name them."""
ERROR = "error.type"
OURS = frozenset({MODE, K, CACHED, PASSAGES, GENERATION, MODEL, PROMPT_TOKENS, ANSWER_TOKENS, ERROR})


class Span:
    """A piece of work, timed; this one is kept by nobody."""

    def set(self, values: Values) -> None:
        """Say more about the work: numbers and names of ours, never a text of a question, a passage or an answer."""


class Tracing:
    """No collector: no span is kept and nothing is sent."""

    def watch(self, app: FastAPI) -> None:
        """Make a span of every request to `app`, as a child of what its `traceparent` names."""

    @contextmanager
    def span(self, name: str, values: Values) -> Iterator[Span]:
        """A child span of the request's, as long as the block runs; one that raises is marked as failed."""
        yield Span()

    def close(self) -> None:
        """Send what is left; blocks until it is sent or given up."""


def usage_values(usage: object) -> Values:
    """The tokens that an engine says a completion took; none when it does not say.

    >>> usage_values({"prompt_tokens": 7, "completion_tokens": 3})
    {'gen_ai.usage.input_tokens': 7, 'gen_ai.usage.output_tokens': 3}
    """
    if not isinstance(usage, dict):
        return {}
    named = {PROMPT_TOKENS: usage.get("prompt_tokens"), ANSWER_TOKENS: usage.get("completion_tokens")}
    return {name: tokens for name, tokens in named.items() if isinstance(tokens, int)}
