"""Spans sent to a collector over HTTP: their names, parents and attributes, and the text that they must not contain; no spans without `--otlp-endpoint`."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from typer.testing import CliRunner

from graph.config import parse_settings
from graph.errors import UserError
from modegraph.cli import build_app
from serve.app import open_tracing
from serve.http.settings import ServerSettings
from tests.fakes import chat_server
from tests.serve.http.collector import Collector, attributes_of, run_collector
from tests.serve.http.running import Running, serving

KEY = "sk-never-in-a-span"
QUESTION = "Who built the Lantern of zebra-word?"
ASK = {"model": "tiny", "messages": [{"role": "user", "content": QUESTION}], "retrieval": {"k": 2}}
CHAT = "POST /v1/chat/completions"
TRACE_ID, CALLER_SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def only_span(spans: list[Span]) -> Span:
    (span,) = spans
    return span


def send_chats(index: Path, collector: Collector, *bodies: dict) -> Collector:  # type: ignore[type-arg]
    """Send chat requests to a server that reports to `collector`, which has received every span once the server has stopped."""
    with (
        chat_server(lambda body, number: "So [1].") as upstream,
        serving(index, f"openai:tiny@{upstream.url}", otlp_endpoint=collector.url) as running,
    ):
        for body in bodies:
            assert running.post("/v1/chat/completions", json=body).status_code == 200
    return collector


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_its_retrieval_and_its_generation_are_spans(shared_isles: Path, stream: bool) -> None:
    with run_collector() as collector:
        send_chats(shared_isles, collector, {**ASK, "stream": stream}, {**ASK, "stream": stream})
    assert set(collector.paths) == {"/v1/traces"}
    requests = collector.spans_named(CHAT)
    assert len(requests) == 2 and len(collector.spans) == 6
    for number, request in enumerate(sorted(requests, key=lambda span: span.start_time_unix_nano)):
        assert request.parent_span_id == b"" and request.kind == Span.SPAN_KIND_SERVER
        assert (
            attributes_of(request)["http.route"] == "/v1/chat/completions"
            and attributes_of(request)["http.status_code"] == 200
        )
        retrieve, generate = (
            only_span([span for span in collector.spans_named(name) if span.trace_id == request.trace_id])
            for name in ("retrieve", "generate")
        )
        assert retrieve.parent_span_id == generate.parent_span_id == request.span_id
        assert attributes_of(retrieve) == {
            "modegraph.retrieval.mode": "auto",
            "modegraph.retrieval.k": 2,
            "modegraph.retrieval.cached": number == 1,
            "modegraph.retrieval.passages": 2,
            "modegraph.index.generation": 1,
        }
        assert attributes_of(generate) == {
            "gen_ai.request.model": "tiny",
            "gen_ai.usage.input_tokens": 7,
            "gen_ai.usage.output_tokens": 3,
        }
        assert retrieve.end_time_unix_nano <= generate.start_time_unix_nano < generate.end_time_unix_nano
        assert generate.end_time_unix_nano <= request.end_time_unix_nano
    resource = collector.requests[0].resource_spans[0].resource
    assert {each.key: each.value.string_value for each in resource.attributes}["service.name"] == "modegraph"


@pytest.mark.parametrize("stream", [False, True])
def test_a_generation_that_the_engine_refuses_is_a_failed_span(shared_isles: Path, stream: bool) -> None:
    with run_collector() as collector:
        with (
            chat_server(lambda body, number: (400, "{}")) as upstream,
            serving(shared_isles, f"openai:tiny@{upstream.url}", otlp_endpoint=collector.url) as running,
        ):
            assert running.post("/v1/chat/completions", json={**ASK, "stream": stream}).status_code == 400
        generate = only_span(collector.spans_named("generate"))
    assert attributes_of(generate) == {"gen_ai.request.model": "tiny", "error.type": "refused_by_model"}
    assert generate.status.code == Status.STATUS_CODE_ERROR


def test_the_trace_of_the_caller_is_continued(shared_isles: Path) -> None:
    with run_collector() as collector:
        with serving(shared_isles, "openai:tiny@http://127.0.0.1:9/v1", otlp_endpoint=collector.url + "/") as running:
            # The caller does not sample the second trace.
            for trace, flags in ((TRACE_ID, "01"), (TRACE_ID[::-1], "00")):
                headers = {"traceparent": f"00-{trace}-{CALLER_SPAN}-{flags}"}
                assert running.post("/v1/retrieve", json={"query": QUESTION}, headers=headers).status_code == 200
        request, retrieve = (
            only_span(collector.spans_named("POST /v1/retrieve")),
            only_span(collector.spans_named("retrieve")),
        )
    assert (request.trace_id.hex(), request.parent_span_id.hex()) == (TRACE_ID, CALLER_SPAN)
    assert (retrieve.trace_id, retrieve.parent_span_id) == (request.trace_id, request.span_id)


def test_spans_contain_no_text_and_no_key(shared_isles: Path) -> None:
    """Spans also lack the query of a URL, the name of a document, and the message of any error, expected or not."""
    headers = {"Authorization": f"Bearer {KEY}", "User-Agent": "zebra-word", "X-Extra": "zebra-word"}
    with run_collector() as collector:
        with (
            chat_server(lambda body, number: "The zebra-word [1].") as upstream,
            serving(
                shared_isles, f"openai:tiny@{upstream.url}", otlp_endpoint=collector.url, api_key=KEY, writable=True
            ) as running,
        ):
            post = {"headers": headers, "json": ASK}
            assert running.post("/v1/chat/completions", **post).status_code == 200
            assert running.get("/v1/graph/entities?q=zebra-word", headers=headers).status_code == 200
            assert running.get("/v1/documents/zebra-word", headers=headers).status_code == 404
            assert running.get("/zebra-word", headers=headers).status_code == 404
            bad = {**ASK, "retrieval": {"where": ["zebra-word"]}}
            assert running.post("/v1/chat/completions", headers=headers, json=bad).status_code == 400
            _break_search(running)
            assert running.post("/v1/retrieve", headers=headers, json={"query": "zebra-word"}).status_code == 500
        sent_bytes = b"".join(collector.bodies)
    failed = only_span(
        [span for span in collector.spans_named("retrieve") if span.status.code == Status.STATUS_CODE_ERROR]
    )
    assert attributes_of(failed)["error.type"] == "RuntimeError" and failed.status.message == ""
    assert only_span(collector.spans_named("POST /v1/retrieve")).status.code == Status.STATUS_CODE_ERROR
    assert len(collector.spans_named("GET /v1/documents/{source:any_path}")) == 1
    passages = running.services.collections.live["index"].current.index.data.passage_texts
    for text in (KEY, "zebra-word", "Lantern", *passages):
        assert text.encode() not in sent_bytes


def _break_search(running: Running) -> None:
    async def failing_find(generation: object, question: str, *rest: object) -> None:
        raise RuntimeError(f"no way to find {question}")

    running.services.retriever._find = failing_find  # type: ignore[method-assign, assignment]


def test_health_readiness_and_metrics_requests_are_not_traced(shared_isles: Path) -> None:
    with run_collector() as collector:
        with serving(shared_isles, "openai:tiny@http://127.0.0.1:9/v1", otlp_endpoint=collector.url) as running:
            for path in ("/health", "/ready", "/metrics", "/health?x=1", "/v1/documents/a/health", "/v1/graph/layers"):
                running.get(path)
        routes = sorted(attributes_of(span)["http.route"] for span in collector.spans)
    assert routes == ["/v1/documents/{source:any_path}", "/v1/graph/layers"]


def test_without_an_endpoint_setting_nothing_is_sent_or_imported(
    shared_isles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with run_collector() as collector:
        for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
            monkeypatch.setenv(name, collector.url)
        monkeypatch.setenv("FASTAPI_OTEL_AUTO_CONFIGURE", "true")
        with serving(shared_isles, "openai:tiny@http://127.0.0.1:9/v1") as running:
            assert running.post("/v1/retrieve", json={"query": QUESTION}).status_code == 200
            running.services.tracing.close()
    assert collector.paths == []
    code = (
        "import sys; from serve.app import open_tracing; open_tracing(None); "
        "print([name for name in sys.modules if name.startswith(('opentelemetry.sdk', 'opentelemetry.exporter', "
        "'opentelemetry.instrumentation', 'serve.http.otlp'))])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize("status", [503, None])
def test_a_failing_collector_neither_fails_requests_nor_delays_stopping(
    shared_isles: Path, status: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve.http.otlp.EXPORT_TIMEOUT_S", 1.0)
    with run_collector(status or 200) as collector:
        url = collector.url if status else "http://127.0.0.1:9"
        with serving(shared_isles, "openai:tiny@http://127.0.0.1:9/v1", otlp_endpoint=url) as running:
            assert running.post("/v1/retrieve", json={"query": QUESTION}).status_code == 200
            started = time.perf_counter()
        assert time.perf_counter() - started < 5


@pytest.mark.parametrize(
    "url",
    [
        "localhost:4318",
        "grpc://localhost:4317",
        "http://",
        "http://me:word@localhost:4318",
        "http://localhost:4318/v1/traces",
        "http://localhost:4318?key=1",
        "http://localhost:99999",
        "http://local host",
        "",
    ],
)
def test_an_invalid_endpoint_is_refused(url: str) -> None:
    with pytest.raises(UserError, match=r"otlp_endpoint.*such as http://localhost:4318"):
        parse_settings(ServerSettings, {"otlp_endpoint": url}, "serve")


def test_the_option_is_checked_like_the_setting(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        build_app(), ["serve", str(tmp_path), "--model", "openai:a@http://b", "--otlp-endpoint", "nowhere"]
    )
    assert "otlp_endpoint" in str(result.exception) + result.output and result.exit_code != 0


def test_without_opentelemetry_the_error_states_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "serve.http.otlp", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.instrumentation.fastapi", None)
    with pytest.raises(UserError, match=r"pip install 'modegraph\[otel\]'"):
        open_tracing("http://localhost:4318")
