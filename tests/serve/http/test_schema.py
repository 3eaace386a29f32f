"""Valid and invalid requests that schemathesis generates from the OpenAPI description, with keys of three scopes.

None causes a 5xx, and the status, type and form of every answer are as described. A run sends CASES requests for each route and key:
2, or 45 if MODEGRAPH_ALL_CASES is set, which is more than 3,000 in total.
"""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from graph.build.build import build_index
from serve.http.keys import change_keys, make_key
from tests.corpora import ISLES
from tests.fakes import HashEncoder, chat_server
from tests.serve.conftest import SETTINGS, Stack
from tests.serve.http.running import Running, serving

CASES = 45 if os.environ.get("MODEGRAPH_ALL_CASES") else 2
RIGHTS = {
    "read": {"scopes": ("read",), "where": ("source!=bread",)},
    "write": {"scopes": ("read", "write")},
    "metrics": {"scopes": ("metrics",)},
}
"""The rights of a key of each scope; the first key may see only some of the documents."""
CHECKS = [status_code_conformance, content_type_conformance, response_schema_conformance]
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
    "GET /v1/graph/overview",
    "GET /v1/graph/entities",
    "GET /v1/graph/layers",
    "GET /v1/graph/summaries",
    "GET /v1/suggestions",
    "GET /v1/questions",
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
    "GET /v1/runs",
    "GET /v1/runs/course",
    "POST /v1/feedback",
    "GET /v1/feedback/{user}",
    "DELETE /v1/feedback/{user}",
]


@dataclass(frozen=True)
class GuardedServer:
    """A server that requires keys, its OpenAPI description, and the headers for a key of each scope."""

    running: Running
    schema: Any
    headers: dict[str, dict[str, str]]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("schema") / "index"
    build_index(folder, ISLES, SETTINGS, lambda spec: HashEncoder())
    with (
        chat_server(lambda body, number: "So [1] [9].") as upstream,
        serving(folder, f"openai:tiny@{upstream.url}", writable=True, feedback=True, capacity=4) as server,
    ):
        yield server


@pytest.fixture(scope="module")
def guarded_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedServer]:
    """A server that requires keys, with its description."""
    folder = tmp_path_factory.mktemp("guarded")
    build_index(folder / "index", ISLES, SETTINGS, lambda spec: HashEncoder())
    new_keys = {name: make_key(name, **rights) for name, rights in RIGHTS.items()}
    change_keys(folder / "keys.json", lambda keys: [key for key, _ in new_keys.values()])
    with (
        chat_server(lambda body, number: "So [1] [9].") as upstream,
        serving(
            folder / "index",
            f"openai:tiny@{upstream.url}",
            keys=str(folder / "keys.json"),
            writable=True,
            feedback=True,
            capacity=4,
        ) as running,
    ):
        headers = {name: {"Authorization": f"Bearer {text}"} for name, (_, text) in new_keys.items()}
        description = running.get("/openapi.json", headers=headers["read"]).json()
        yield GuardedServer(running, schemathesis.openapi.from_dict(description), headers)


@pytest.fixture(scope="module")
def status_counts() -> Iterator[Counter[tuple[str, int]]]:
    """The number of answers by key and status; printed at the end."""
    statuses: Counter[tuple[str, int]] = Counter()
    yield statuses
    print(f"schemathesis: {statuses.total():,} cases")
    for key in RIGHTS:
        print(f"  {key}: {dict(sorted((status, n) for (name, status), n in statuses.items() if name == key))}")


@pytest.mark.parametrize("key", RIGHTS)
@pytest.mark.parametrize("label", OPERATIONS)
def test_every_answer_matches_its_description(
    guarded_server: GuardedServer, status_counts: Counter[tuple[str, int]], label: str, key: str
) -> None:
    url, headers = guarded_server.running.url, guarded_server.headers[key]
    (operation,) = [found.ok() for found in guarded_server.schema.get_all_operations() if found.ok().label == label]
    valid, invalid = (operation.as_strategy(generation_mode=mode) for mode in GenerationMode)

    @given(case=valid | invalid)
    @settings(max_examples=CASES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    def ask(case: schemathesis.Case) -> None:
        answer = case.call(base_url=url, headers=headers, timeout=30)
        status_counts[key, answer.status_code] += 1
        assert answer.status_code < 500, (case.as_curl_command(), answer.text[:500])
        assert answer.status_code != 401, "the key should be accepted"
        case.validate_response(answer, checks=CHECKS, headers=headers)

    ask()


def test_keys_grant_the_rights_of_their_scopes(guarded_server: GuardedServer) -> None:
    """Without this check, the tests would also pass if the server refused all requests of a scope."""
    running = guarded_server.running

    def statuses(name: str) -> list[int]:
        headers = guarded_server.headers[name]
        new = {"documents": [{"source": "new", "text": "A new mill."}]}
        return [
            running.get("/metrics", headers=headers).status_code,
            running.post("/v1/retrieve", json={"query": "Lantern"}, headers=headers).status_code,
            running.post("/v1/documents", json=new, headers=headers).status_code,
        ]

    assert {name: statuses(name) for name in RIGHTS} == {
        "read": [403, 200, 403],
        "write": [403, 200, 200],
        "metrics": [200, 403, 403],
    }


def test_the_tested_operations_are_all_routes_of_the_server(running: Running) -> None:
    paths = running.get("/openapi.json").json()["paths"]
    routes = {f"{method.upper()} {path}" for path, each in paths.items() for method in each}
    assert routes == set(OPERATIONS)


def test_every_route_is_described(running: Running) -> None:
    description = running.get("/openapi.json").json()
    paths = description["paths"]
    assert all(each.get("description") for path in paths.values() for each in path.values())
    assert all(
        "4XX" in each["responses"] and "422" not in each["responses"]
        for path in paths.values()
        for each in path.values()
    )
    assert set(description["components"]["schemas"]["ErrorDetail"]["properties"]) == {
        "message",
        "type",
        "param",
        "code",
    }


def test_the_key_and_the_streams_are_described(running: Running) -> None:
    description = running.get("/openapi.json").json()
    assert description["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    assert description["components"]["securitySchemes"]["x-api-key"]["name"] == "X-Api-Key"
    assert description["security"] == [{}, {"bearer": []}, {"x-api-key": []}]
    assert description["paths"]["/health"]["get"]["security"] == []
    for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages"):
        content = description["paths"][path]["post"]["responses"]["200"]["content"]
        assert set(content) == {"application/json", "text/event-stream"}


def test_with_a_key_set_the_description_requires_it(stack: Stack) -> None:
    running, _ = stack(api_key="k")
    description = running.get("/openapi.json", headers={"Authorization": "Bearer k"}).json()
    assert description["security"] == [{"bearer": []}, {"x-api-key": []}]
    assert [description["paths"][path]["get"]["security"] for path in ("/health", "/ready")] == [[], []]


def test_the_refusal_of_a_method_names_the_allowed_methods(running: Running) -> None:
    for path, allowed in {
        "/health": "GET",
        "/": "GET, HEAD",
        "/v1/documents": "GET, POST",
        "/v1/documents/a": "GET, DELETE",
        "/v1/documents/files": "GET, POST, DELETE",
        "/v1/chat/completions": "POST",
    }.items():
        response = httpx2.request("PATCH", running.url + path)
        assert (response.status_code, response.headers["allow"]) == (405, allowed), path
