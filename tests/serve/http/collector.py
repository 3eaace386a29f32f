"""A span collector on a free port of this machine: it receives OTLP over HTTP, stores the bytes and parses the spans in them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.servers import QuietHandler, http_server


@dataclass
class Collector:
    """The address of a collector, and the paths and bodies of the requests that it has received."""

    url: str
    paths: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    @property
    def requests(self) -> list[ExportTraceServiceRequest]:
        return [ExportTraceServiceRequest.FromString(body) for body in self.bodies]

    @property
    def spans(self) -> list[Span]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def spans_named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]


def attributes_of(span: Span) -> dict[str, Any]:
    """The attributes of a span as Python values."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


@contextmanager
def run_collector(status: int = 200) -> Iterator[Collector]:
    """A collector that answers every request with `status`, until the `with` block ends."""

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            collector.paths.append(self.path)
            collector.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

    with http_server(Handler) as address:
        collector = Collector(address)
        yield collector
