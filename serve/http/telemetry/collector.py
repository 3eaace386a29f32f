"""Where spans go: to the collector that is named, or nowhere, and then nothing of OpenTelemetry is imported."""

from __future__ import annotations

from graph.shared.errors import UserError
from serve.http.telemetry.tracing import Tracing


def open_tracing(endpoint: str | None) -> Tracing:
    """What sends spans to the collector at `endpoint` (None: nothing); UserError when OpenTelemetry is not installed."""
    if endpoint is None:
        return Tracing()
    try:
        from serve.http.telemetry.otlp import OtlpTracing
    except ModuleNotFoundError as problem:
        found = f"--otlp-endpoint {endpoint}: {problem.name} is not installed"
        raise UserError(
            found, "OpenTelemetry's SDK, exporter and instrumentation", "pip install 'modegraph[otel]'"
        ) from None
    return OtlpTracing(endpoint)
