"""The index as an OpenAI vector store: the SDK parses the responses, and an unsupported field is refused and named."""

from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from graph.build.build import build_index
from graph.types import Document
from tests.corpora import ISLES
from tests.fakes import HashEncoder
from tests.serve.conftest import SETTINGS
from tests.serve.http.running import Running, serving

QUESTION = "Who founded the Marlow Yard?"
DOCUMENTS = [
    Document(
        each.source,
        each.title,
        each.text,
        {"year": 1900 + n, "kind": {1: "a*b", 2: " a b "}.get(n, "axb"), "tags": ["x", "y"], "page_starts": [0, 9]},
    )
    for n, each in enumerate(ISLES)
]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("stores") / "harbour"
    build_index(folder, DOCUMENTS, SETTINGS, lambda spec: HashEncoder())
    with serving(folder, None) as server:
        yield server


def sources_found(running: Running, **options: object) -> list[str]:
    page = running.client().vector_stores.search("harbour", query=QUESTION, **options)  # type: ignore[arg-type]
    return sorted({each.file_id for each in page})


def test_a_search_returns_the_passages_of_retrieve(running: Running) -> None:
    expected = running.post("/v1/retrieve", json={"query": QUESTION, "k": 3}).json()["passages"]
    page = running.client().vector_stores.search("harbour", query=[QUESTION], max_num_results=3)
    assert len(expected) == 3 and not page.has_next_page()
    results = [(each.file_id, each.filename, each.content[0].text, each.score) for each in page.data]
    assert results == [(each["source"], each["source"], each["text"], each["score"]) for each in expected]
    first = page.data[0]
    assert first.attributes is not None and first.attributes["tags"] == "x, y"
    assert set(first.attributes) == {"year", "kind", "tags"}
    assert first.model_extra is not None
    place = expected[0]
    assert first.model_extra["url"] == f"{running.url}/#read/{place['source']}/{place['start']}-{place['end']}"


def test_filters_select_documents_by_metadata(running: Running) -> None:
    def condition(comparison: str, key: str, value: object) -> dict[str, object]:
        return {"type": comparison, "key": key, "value": value}

    sources = [each.source for each in DOCUMENTS]
    assert sources_found(running, filters=condition("gte", "year", 1903)) == sorted(sources[3:])
    assert sources_found(running, filters=condition("lt", "year", 1901.0)) == sources[:1]
    assert sources_found(running, filters=condition("eq", "kind", "a*b")) == [sources[1]]
    assert sources_found(running, filters=condition("eq", "kind", " a b ")) == [sources[2]]
    assert sources_found(running, filters=condition("eq", "kind", "a b")) == []
    assert sources_found(running, filters=condition("nin", "year", [1900, 1901, 1902])) == sorted(sources[3:])
    assert sources_found(running, filters=condition("in", "source", ["tarn"])) == ["tarn"]
    assert sources_found(running, filters=condition("eq", "source", "[" * 500)) == []
    refusal = running.post("/v1/retrieve", json={"query": QUESTION, "where": ["source=nowhere"]})
    assert refusal.status_code == 400 and "documents meets it" in refusal.json()["error"]["message"]
    both = {"type": "and", "filters": [condition("ne", "source", "tarn"), condition("gt", "year", 1902)]}
    assert sources_found(running, filters=both) == ["bread"]


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"rewrite_query": True}, "rewrite_query"),
        ({"query": ["a", "b"]}, "query"),
        ({"ranking_options": {"score_threshold": 0.5}}, "ranking_options.score_threshold"),
        ({"ranking_options": {"hybrid_search": {"embedding_weight": 1}}}, "ranking_options.hybrid_search"),
        ({"filters": {"type": "in", "key": "year", "value": [1, 2]}}, "filters"),
        (
            {"filters": {"type": "or", "filters": [{"type": "eq", "key": "year", "value": n} for n in (1, 2)]}},
            "filters",
        ),
    ],
)
def test_an_unsupported_field_is_refused_and_named(running: Running, options: dict[str, object], place: str) -> None:
    response = running.post("/v1/vector_stores/harbour/search", json={"query": QUESTION, **options})
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (400, "not_supported", place)


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        ({"query": "  "}, 400, "empty"),
        ({"query": "x" * 8001}, 400, "8,000"),
        ({"max_num_results": 51}, 422, "max_num_results"),
        ({"filters": {"type": "eq", "key": "colour", "value": "red"}}, 400, "no document has it"),
        ({"filters": {"type": "eq", "key": "वर्ष dc:x", "value": "red"}}, 400, "no document has it"),
        ({"filters": {"type": "eq", "key": "source", "value": "[" * 501}}, 422, "filters"),
        ({"filters": {"type": "eq", "key": "year>=1 or x", "value": "red"}}, 422, "filters"),
        ({"filters": {"type": "eq", "key": "year", "value": [1900]}}, 400, "one value"),
        (
            {"filters": {"type": "and", "filters": [{"type": "nin", "key": "year", "value": [1] * 16}] * 2}},
            400,
            "filters: 32 conditions in all; the limit is 16",
        ),
        ({"surprise": 1}, 422, "surprise"),
    ],
)
def test_an_invalid_request_gets_an_error_that_states_the_mistake(
    running: Running, options: dict[str, object], status: int, words: str
) -> None:
    response = running.post("/v1/vector_stores/harbour/search", json={"query": QUESTION, **options})
    assert response.status_code == status and words in response.json()["error"]["message"]


def test_the_vector_store_is_listed(running: Running) -> None:
    client = running.client()
    (store,) = client.vector_stores.list()
    assert (store.id, store.status, store.file_counts.completed) == ("harbour", "completed", len(DOCUMENTS))
    assert client.vector_stores.retrieve("harbour") == store and store.usage_bytes > 0
    with pytest.raises(openai.NotFoundError, match="available: harbour"):
        client.vector_stores.search("vs_other", query=QUESTION)


def test_the_routes_require_the_key(shared_isles: Path) -> None:
    with serving(shared_isles, None, api_key="k") as running:
        for path in (f"/v1/vector_stores/{shared_isles.name}/search", "/v1/embeddings", "/v1/rerank"):
            assert running.post(path, json={}).status_code == 401
            assert running.post(path, json={}, headers={"Authorization": "Bearer k"}).status_code == 422
