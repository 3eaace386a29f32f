"""Requests made from the OpenAPI page by schemathesis, sound and unsound: none ends in a 5xx.

CASES a test in the usual run; MODEGRAPH_SCHEMA_CASES raises it: 200 give more than 2,000 requests.
"""

import os
from collections.abc import Iterator

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode

from tests.fakes import chat_server
from tests.serve.http.conftest import Stack
from tests.serve.http.running import Running, serving

CASES = int(os.environ.get("MODEGRAPH_SCHEMA_CASES", "4"))
COUNTED: dict[str, int] = {}
OPERATIONS = [
    "GET /health",
    "GET /ready",
    "GET /metrics",
    "GET /v1/models",
    "GET /v1/models/{model}",
    "POST /v1/chat/completions",
    "POST /v1/responses",
    "POST /v1/messages",
    "POST /v1/retrieve",
    "GET /v1/graph/neighbourhood",
    "GET /v1/graph/entities",
    "GET /v1/graph/layers",
    "GET /v1/graph/summaries",
    "GET /v1/documents",
    "POST /v1/documents",
    "POST /v1/documents/files",
    "GET /v1/documents/{source}",
    "DELETE /v1/documents/{source}",
    "GET /v1/vector_stores",
    "GET /v1/vector_stores/{vector_store_id}",
    "POST /v1/vector_stores/{vector_store_id}/search",
    "POST /v1/embeddings",
    "POST /v1/rerank",
    "POST /v1/feedback",
    "GET /v1/feedback/{user}",
    "DELETE /v1/feedback/{user}",
]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    from graph.build.build import build_index
    from tests.corpora import ISLES
    from tests.fakes import HashEncoder
    from tests.serve.http.conftest import SETTINGS

    folder = tmp_path_factory.mktemp("schema") / "index"
    build_index(folder, ISLES, SETTINGS, lambda spec: HashEncoder())
    with (
        chat_server(lambda body, number: "So [1] [9].") as upstream,
        serving(folder, f"openai:tiny@{upstream.url}", writable=True, feedback=True, capacity=4) as on,
    ):
        yield on
    print(f"schemathesis: {sum(COUNTED.values())} cases, by status {dict(sorted(COUNTED.items()))}")


@pytest.mark.parametrize("label", OPERATIONS)
def test_no_request_ends_in_a_5xx(running: Running, label: str) -> None:
    schema = schemathesis.openapi.from_url(f"{running.url}/openapi.json")
    (operation,) = [found.ok() for found in schema.get_all_operations() if found.ok().label == label]
    sound, unsound = (operation.as_strategy(generation_mode=mode) for mode in GenerationMode)

    @given(case=sound | unsound)
    @settings(max_examples=CASES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    def ask(case: schemathesis.Case) -> None:
        answer = case.call(timeout=30)
        COUNTED[str(answer.status_code)] = COUNTED.get(str(answer.status_code), 0) + 1
        assert answer.status_code < 500, (case.as_curl_command(), answer.text[:500])
        assert answer.status_code != 200 or answer.content, case.as_curl_command()

    ask()


def test_every_route_is_described(running: Running) -> None:
    described = running.get("/openapi.json").json()
    paths = described["paths"]
    assert {"/v1/chat/completions", "/v1/retrieve", "/v1/models", "/v1/documents", "/v1/documents/{source}"} <= set(
        paths
    )
    assert {"/health", "/ready", "/metrics", "/v1/graph/neighbourhood", "/v1/responses"} <= set(paths)
    assert all(each.get("description") for path in paths.values() for each in path.values())
    assert all(
        "4XX" in each["responses"] and "422" not in each["responses"]
        for path in paths.values()
        for each in path.values()
    )
    assert set(described["components"]["schemas"]["ErrorDetail"]["properties"]) == {"message", "type", "param", "code"}


def test_the_key_and_the_streams_are_described(running: Running) -> None:
    described = running.get("/openapi.json").json()
    assert described["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    assert described["components"]["securitySchemes"]["x-api-key"]["name"] == "X-Api-Key"
    assert described["security"] == [{}, {"bearer": []}, {"x-api-key": []}]
    assert described["paths"]["/health"]["get"]["security"] == []
    for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages"):
        content = described["paths"][path]["post"]["responses"]["200"]["content"]
        assert set(content) == {"application/json", "text/event-stream"}


def test_with_a_key_the_description_wants_it(stack: Stack) -> None:
    running, _ = stack(api_key="k")
    described = running.get("/openapi.json", headers={"Authorization": "Bearer k"}).json()
    assert described["security"] == [{"bearer": []}, {"x-api-key": []}]
    assert [described["paths"][path]["get"]["security"] for path in ("/health", "/ready")] == [[], []]


def test_a_refused_method_is_told_which_are_taken(running: Running) -> None:
    for path, taken in {
        "/health": "GET",
        "/": "GET, HEAD",
        "/v1/documents": "GET, POST",
        "/v1/documents/a": "GET, DELETE",
        "/v1/documents/files": "GET, POST, DELETE",
        "/v1/chat/completions": "POST",
    }.items():
        made = httpx2.request("PATCH", running.url + path)
        assert (made.status_code, made.headers["allow"]) == (405, taken), path
