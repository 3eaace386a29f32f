"""A server without a model: search, evidence and documents are served; requests that need a model are refused with a remedy."""

from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from graph.errors import UserError
from serve.engines.open_backend import VllmOptions, open_backend
from tests.serve.http.running import Running, serving

REQUEST = {"model": "tiny", "messages": [{"role": "user", "content": "Who built the Lantern?"}]}


@pytest.fixture(scope="module")
def server(shared_isles: Path) -> Iterator[Running]:
    with serving(shared_isles, None) as running:
        yield running


def test_search_and_the_graph_are_served(server: Running) -> None:
    found = server.post("/v1/retrieve", json={"query": "Who built the Lantern?"})
    assert found.status_code == 200 and found.json()["passages"]
    assert server.get("/v1/graph/entities?q=lantern").json()
    assert server.get("/v1/documents").json()["total"] > 0
    assert server.get("/").status_code == 200


def test_the_server_is_ready_and_lists_no_model(server: Running) -> None:
    assert server.get("/health").status_code == 200
    ready = server.get("/ready")
    assert (ready.status_code, ready.json()["models"]) == (200, [])
    assert server.get("/v1/models").json() == {"object": "list", "data": []}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", REQUEST),
        ("/v1/chat/completions", {**REQUEST, "stream": True}),
        ("/v1/chat/completions", {**REQUEST, "retrieval": {"enabled": False}}),
        ("/v1/responses", {"model": "tiny", "input": "hello"}),
        ("/v1/retrieve", {"query": "Who?", "mode": "local", "use_model": True}),
        ("/v1/retrieve", {"query": "Who?", "model": "tiny"}),
    ],
)
def test_a_request_that_needs_a_model_is_refused_with_a_remedy(
    server: Running, path: str, body: dict[str, object]
) -> None:
    response = server.post(path, json=body)
    assert (response.status_code, response.json()["error"]["code"]) == (404, "no_model")
    assert "--model" in response.json()["error"]["message"]


def test_the_openai_client_reads_the_error_about_the_missing_model(server: Running) -> None:
    with pytest.raises(openai.NotFoundError, match="this server has no model"):
        server.client().chat.completions.create(**REQUEST)  # type: ignore[call-overload]
    assert server.get("/v1/models/tiny").json()["error"]["code"] == "no_model"


@pytest.mark.long
def test_documents_can_be_added_without_a_model(isles: Path) -> None:
    with serving(isles, None, writable=True) as running:
        response = running.post(
            "/v1/documents", json={"documents": [{"source": "new.txt", "text": "The Heron is a boat of Quill."}]}
        )
        assert response.status_code in (200, 201)
        assert "new.txt" in running.post("/v1/retrieve", json={"query": "the boat Heron", "mode": "lexical"}).text


def test_an_adapter_needs_a_model() -> None:
    with pytest.raises(UserError, match="--adapter ms=here without --model"):
        open_backend(None, ["ms=here"], VllmOptions())
