"""/v1/retrieve, /v1/graph and the list of documents: their results agree with the index, and only requests with `use_model` call the model."""

from collections import Counter
from pathlib import Path

import pytest

from graph.index.index import open_index
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.retrieve import retrieve
from graph.shared.modes import MODES
from tests.fakes import ChatServer, HashEncoder
from tests.serve.conftest import Stack
from tests.serve.http.running import Running

QUESTION = "Who founded the Marlow Yard that built the Lantern?"


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_returns_the_same_results_as_retrieve(
    shared_stack: tuple[Running, ChatServer], shared_isles: Path, mode: str
) -> None:
    running, upstream = shared_stack
    response = running.post("/v1/retrieve", json={"query": QUESTION, "mode": mode, "k": 3}).json()
    index = open_index(shared_isles, lambda spec: HashEncoder())
    expected = retrieve(index, QUESTION, RetrieveSettings(mode=mode, top_k=3))  # type: ignore[arg-type]
    assert [(each["id"], each["score"]) for each in response["passages"]] == [
        (found.item.id, pytest.approx(found.score)) for found in expected.passages
    ]
    assert [tuple(each["path"]) for each in response["passages"]] == list(
        expected.paths or [()] * len(expected.passages)
    )
    assert response["trace"]["mode"] == mode and response["question"] == QUESTION and upstream.requests == []


def test_filters_are_applied_to_the_search(stack: Stack) -> None:
    running, _ = stack()
    body = {"query": QUESTION, "where": ["source=tarn"]}
    assert {each["source"] for each in running.post("/v1/retrieve", json=body).json()["passages"]} == {"tarn"}
    refusal = running.post("/v1/retrieve", json={"query": QUESTION, "where": ["colour=red"]})
    assert refusal.status_code == 400 and "no document has it" in refusal.json()["error"]["message"]


def test_the_probability_of_absence_is_returned_by_default_and_invalid_thresholds_are_refused(stack: Stack) -> None:
    running, _ = stack()
    default = running.post("/v1/retrieve", json={"query": QUESTION}).json()["absence"]
    assert default["probability"] < 0.2 and not default["abstained"]
    covered = running.post("/v1/retrieve", json={"query": QUESTION, "abstain": 0.5}).json()
    uncovered = running.post("/v1/retrieve", json={"query": "Do statins lower mortality?", "abstain": 0.5}).json()
    assert uncovered["passages"] and uncovered["absence"]["abstained"] and not covered["absence"]["abstained"]
    assert covered["absence"]["probability"] < 0.2 and uncovered["absence"]["probability"] > 0.7
    for value in (-0.1, 1.1, "often"):
        refusal = running.post("/v1/retrieve", json={"query": QUESTION, "abstain": value})
        assert refusal.status_code == 422 and "abstain" in refusal.json()["error"]["message"], value


def test_the_model_is_called_only_on_request(stack: Stack) -> None:
    running, upstream = stack("{}")
    body = {"query": QUESTION, "mode": "local"}
    running.post("/v1/retrieve", json=body)
    assert upstream.requests == []
    running.post("/v1/retrieve", json={**body, "use_model": True})
    assert len(upstream.requests) > 0
    refusal = running.post("/v1/retrieve", json={**body, "selector": "llm"})
    assert refusal.status_code == 400 and "use_model" in refusal.json()["error"]["message"]


def test_the_evidence_of_a_search_is_cached(stack: Stack) -> None:
    running, _ = stack()
    first, second = (running.post("/v1/retrieve", json={"query": QUESTION}).json() for _ in range(2))
    assert first == second
    assert running.metric('modegraph_retrieval_cache_total{outcome="hit"}') == 1
    running.post("/v1/retrieve", json={"query": QUESTION, "k": 2})
    assert running.metric('modegraph_retrieval_cache_total{outcome="hit"}') == 1


def test_every_kind_of_node_has_neighbours(stack: Stack) -> None:
    running, _ = stack()

    def neighbours_of(kind: str, identity: str, limit: int = 60) -> dict:  # type: ignore[type-arg]
        response = running.get("/v1/graph/neighbourhood", params={"kind": kind, "id": identity, "limit": limit})
        assert response.status_code == 200, response.text
        return response.json()  # type: ignore[no-any-return]

    document = neighbours_of("document", "marlow")
    (passage,) = [each for each in document["nodes"] if each["kind"] == "passage"]
    assert passage["text"].startswith("The Marlow Yard stands in Quill.") and passage["source"] == "marlow"
    assert {"kind": "has", "source": "document:marlow", "target": passage["key"], "weight": 1.0} in document["edges"]
    around = neighbours_of("passage", passage["id"])
    assert "document:marlow" in {each["key"] for each in around["nodes"]}
    proposition = next(each for each in around["nodes"] if each["kind"] == "proposition")
    entities = [each for each in neighbours_of("proposition", proposition["id"])["nodes"] if each["kind"] == "entity"]
    by_text = neighbours_of("entity", "the Marlow Yard")
    by_id = neighbours_of("entity", next(each["id"] for each in entities if "Marlow" in each["label"]))
    assert by_text["center"]["label"] == "Marlow Yard" and by_id["center"]["kind"] == "entity"
    assert {each["kind"] for each in by_text["edges"]} >= {"mentions"}
    summary = running.get("/v1/graph/summaries", params={"layer": 1}).json()[0]
    below = neighbours_of("summary", summary["id"])
    assert {each["kind"] for each in below["edges"]} >= {"sums up"}
    small = neighbours_of("passage", passage["id"], limit=1)
    assert len(small["edges"]) == 1 and small["left_out"] == len(around["edges"]) - 1
    assert running.get("/v1/graph/neighbourhood", params={"kind": "entity", "id": "Nobody"}).status_code == 404


def test_entities_and_layers_can_be_browsed(stack: Stack) -> None:
    running, _ = stack()
    assert [each["label"] for each in running.get("/v1/graph/entities", params={"q": "marl"}).json()][:1] == [
        "Marlow Yard"
    ]
    layers = running.get("/v1/graph/layers").json()
    assert [each["layer"] for each in layers] == sorted(each["layer"] for each in layers) and layers[0]["summaries"] > 0


def test_the_overview_counts_how_often_documents_mention_entities(stack: Stack, shared_isles) -> None:  # type: ignore[no-untyped-def]
    running, _ = stack()
    data = open_index(shared_isles, lambda spec: HashEncoder()).data
    expected: Counter[tuple[str, str]] = Counter()
    mentions_NE = data.proposition_entity_NE.toarray()
    for passage, occurrences_N in enumerate(data.passage_proposition_PN.toarray()):
        source = data.document_sources[data.passage_document_P[passage]]
        for proposition, entity in zip(*mentions_NE.nonzero(), strict=True):
            mentions = occurrences_N[proposition] * mentions_NE[proposition, entity]
            expected[f"document:{source}", f"entity:{data.entity_ids[entity]}"] += int(mentions)
    whole = running.get("/v1/graph/overview").json()
    assert {(each["source"], each["target"]): each["weight"] for each in whole["edges"]} == +expected
    assert (whole["documents"], whole["entities"]) == (5, len(data.entity_ids))
    assert len(whole["nodes"]) == 5 + len(data.entity_ids)
    some = running.get("/v1/graph/overview", params={"limit": 4}).json()
    first = [each["key"] for each in running.get("/v1/graph/entities", params={"limit": 2}).json()]
    linked = Counter(source for source, target in +expected if target in first)
    documents, entities = ([each["key"] for each in some["nodes"][start : start + 2]] for start in (0, 2))
    assert entities == first and some["documents"] == 5
    assert sorted(linked[each] for each in documents) == sorted(linked.values())[-2:]
    assert {each["source"] for each in some["edges"]} == {each for each in documents if linked[each]}
    assert running.get("/v1/graph/overview?limit=501").status_code == 422


def test_documents_that_mention_an_entity_are_listed(stack: Stack) -> None:
    running, _ = stack()
    listing = running.get("/v1/documents", params={"entity": "the Marlow Yard", "limit": 1}).json()
    sources = [each["source"] for each in running.get("/v1/documents?entity=marlow%20yard").json()["documents"]]
    texts = {
        source: running.get(f"/v1/documents/{source}").text for source in ("ada", "bread", "lantern", "marlow", "tarn")
    }
    assert sources == [source for source, text in texts.items() if "Marlow Yard" in text]
    assert (listing["total"], listing["total_passages"], len(listing["documents"])) == (len(sources), len(sources), 1)
    unknown = running.get("/v1/documents?entity=nobody")
    assert (unknown.status_code, unknown.json()["error"]["param"]) == (404, "entity")


def test_documents_are_listed_and_read(stack: Stack) -> None:
    running, _ = stack()
    listing = running.get("/v1/documents", params={"limit": 2, "offset": 1}).json()
    assert listing["total"] == 5 and [each["source"] for each in listing["documents"]] == ["bread", "lantern"]
    assert running.get("/v1/documents?offset=99").json()["documents"] == []
    text = running.get("/v1/documents/tarn").json()
    assert text["title"] == "Tarn" and text["passages"][0]["start"] == 0
    assert running.get("/v1/documents/nowhere").status_code == 404
    assert running.get("/v1/documents/..%2f..%2fetc%2fpasswd").status_code == 404
