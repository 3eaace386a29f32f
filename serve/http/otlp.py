"""Sends spans to a collector by OTLP over HTTP. Imported by app.py only if a collector is configured.

The exporter passes on only the attributes in `EXPORTED_ATTRIBUTES`: it removes addresses, queries, headers, error messages and stack traces,
which the instrumentation would add and which may contain users' questions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fastapi import FastAPI
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Span as ApiSpan
from opentelemetry.trace import Status, StatusCode

from serve.http.errors import ApiError
from serve.http.telemetry import ERROR, SPAN_ATTRIBUTES, Span, Tracing, Values

HTTP_ATTRIBUTES = frozenset(
    {"http.method", "http.request.method", "http.route", "http.status_code", "http.response.status_code"}
)
EXPORTED_ATTRIBUTES = SPAN_ATTRIBUTES | HTTP_ATTRIBUTES
UNTRACED_URLS = r"^[a-z]+://[^/]*/(health|ready|metrics)$"
EXPORT_TIMEOUT_S = 5.0


class OtlpTracing(Tracing):
    """Sends the spans of one server to the collector at `endpoint` (its base address), in batches, from a thread."""

    def __init__(self, endpoint: str) -> None:
        self._provider = TracerProvider(resource=Resource.create({SERVICE_NAME: "modegraph"}))
        exporter = OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces", timeout=EXPORT_TIMEOUT_S)
        self._provider.add_span_processor(BatchSpanProcessor(RedactingExporter(exporter)))
        self._tracer = self._provider.get_tracer("modegraph")

    def watch(self, app: FastAPI) -> None:
        FastAPIInstrumentor.instrument_app(
            app, tracer_provider=self._provider, excluded_urls=UNTRACED_URLS, exclude_spans=["receive", "send"]
        )

    @contextmanager
    def span(self, name: str, values: Values) -> Iterator[Span]:
        # The span is never made current: a stream's generator may be closed in a different context from the one it began in.
        span = self._tracer.start_span(name, attributes=dict(values))
        try:
            yield OtlpSpan(span)
        except Exception as problem:
            span.set_attribute(ERROR, problem.code if isinstance(problem, ApiError) else type(problem).__name__)
            span.set_status(Status(StatusCode.ERROR))
            raise
        finally:
            span.end()

    def close(self) -> None:
        self._provider.shutdown()


class OtlpSpan(Span):
    """A span that is queued for sending when its block ends."""

    def __init__(self, span: ApiSpan) -> None:
        self._span = span

    def set(self, values: Values) -> None:
        self._span.set_attributes(dict(values))


class RedactingExporter(SpanExporter):
    """Passes on to `exporter` only the `EXPORTED_ATTRIBUTES` of each span."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return self._exporter.export([without_texts(span) for span in spans])

    def shutdown(self) -> None:
        self._exporter.shutdown()


def without_texts(span: ReadableSpan) -> ReadableSpan:
    """The span with only the `EXPORTED_ATTRIBUTES`, and without events, links and status description."""
    return ReadableSpan(
        name=span.name,
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        attributes={name: value for name, value in (span.attributes or {}).items() if name in EXPORTED_ATTRIBUTES},
        kind=span.kind,
        status=Status(span.status.status_code),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )
