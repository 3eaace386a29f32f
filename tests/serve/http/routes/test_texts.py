"""Embeddings by the encoder of the index, and reranking by that encoder or by a cross-encoder, in the formats that clients read."""

import base64
from pathlib import Path

import numpy as np
import openai
import pytest

from graph.retrieve.learned.rerank import open_reranker
from tests.fakes import ChatServer, HashEncoder
from tests.graph.retrieve.learned.test_rerank import make_cross_encoder
from tests.serve.conftest import Stack
from tests.serve.http.running import Running, serving

TEXTS = ["kelp bread of Tarn", "the Marlow Yard built ships", "kelp"]


@pytest.mark.parametrize("form", ["float", "base64", None])
def test_embeddings_are_the_vectors_of_the_indexs_encoder(stack: Stack, form: str | None) -> None:
    running, _ = stack()
    options = {} if form is None else {"encoding_format": form}
    response = running.client().embeddings.create(model="minilm", input=TEXTS, **options)  # type: ignore[arg-type]
    assert [each.index for each in response.data] == [0, 1, 2]
    if form == "base64":
        rows = [np.frombuffer(base64.b64decode(each.embedding), "<f4") for each in response.data]  # type: ignore[arg-type]
    else:
        rows = [np.array(each.embedding) for each in response.data]
    assert np.allclose(np.stack(rows), HashEncoder().encode(TEXTS), atol=1e-6)
    assert response.usage.prompt_tokens == sum(len(text.split()) for text in TEXTS) == response.usage.total_tokens


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"input": [1, 2]}, 400, "input is not supported: the server cannot tell"),
        ({"input": [[1, 2], [3]]}, 400, "input is not supported: the server cannot tell"),
        ({"input": [1] * 300}, 400, "input is not supported: the server cannot tell"),
        ({"input": []}, 422, "input: the list has 0 items; a request may have 1 to 256"),
        ({"input": ["a", " "]}, 400, "input.1: the text is empty"),
        ({"input": ["a", "b" * 8001]}, 400, "input.1: the text has 8,001 characters; the limit is 8,000"),
        ({"input": ["a"] * 257}, 422, "input: the list has 257 items; a request may have 1 to 256"),
        ({"dimensions": 8}, 400, "have 16 dimensions, which cannot be reduced"),
        ({"model": "text-embedding-3-small"}, 404, "available: minilm"),
        ({"surprise": 1}, 422, "surprise"),
    ],
)
def test_invalid_embedding_requests_are_refused(
    shared_stack: tuple[Running, ChatServer], fields: dict[str, object], status: int, words: str
) -> None:
    running, _ = shared_stack
    response = running.post("/v1/embeddings", json={"model": "minilm", "input": "a", **fields})
    assert response.status_code == status and words in response.json()["error"]["message"]


def test_documents_are_ranked_by_their_cosines_with_the_query(stack: Stack) -> None:
    running, _ = stack()
    ranking = running.post(
        "/v1/rerank", json={"query": "kelp bread", "documents": TEXTS, "return_documents": True}
    ).json()
    query_D, vectors_ND = HashEncoder().encode(["kelp bread"])[0], HashEncoder().encode(TEXTS)
    expected = sorted(enumerate((vectors_ND @ query_D).tolist()), key=lambda pair: -pair[1])
    assert [(each["index"], pytest.approx(each["relevance_score"])) for each in ranking["results"]] == expected
    assert [each["document"]["text"] for each in ranking["results"]] == [TEXTS[n] for n, _ in expected]
    two = {"query": "kelp bread", "documents": [{"text": text} for text in TEXTS], "top_n": 2, "model": "minilm"}
    short = running.post("/v1/rerank", json=two).json()
    assert [each["index"] for each in short["results"]] == [n for n, _ in expected[:2]] and short["model"] == "minilm"
    assert "document" not in short["results"][0]


@pytest.mark.parametrize("name", ["cross", "minilm"])
def test_the_servers_cross_encoder_ranks_if_there_is_one(shared_isles: Path, tmp_path: Path, name: str) -> None:
    """The cross-encoder ranks even if its folder has the same name as the encoder; in that case, requests cannot choose the encoder."""
    cross = make_cross_encoder(tmp_path / name, labels=1)
    scores = open_reranker(str(cross))("kelp bread", TEXTS)
    with serving(shared_isles, None, reranker=str(cross)) as running:
        body = {"query": "kelp bread", "documents": TEXTS}
        ranking = running.post("/v1/rerank", json=body).json()
        assert ranking["model"] == name
        ranked = {each["index"]: each["relevance_score"] for each in ranking["results"]}
        assert list(ranked.values()) == sorted(ranked.values(), reverse=True)
        assert [ranked[n] for n in range(3)] == pytest.approx(scores.tolist(), abs=1e-5)
        response = running.post("/v1/rerank", json={**body, "model": "minilm"}).json()
        is_cosine = response["results"][0]["relevance_score"] != max(ranked.values())
        assert response["model"] == "minilm" and is_cosine == (name == "cross")


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"query": " "}, 400, "the question is empty"),
        ({"documents": ["a", ""]}, 400, "documents.1: the text is empty"),
        ({"documents": []}, 422, "documents"),
        ({"documents": [{"title": "a"}]}, 422, "documents"),
        ({"model": "rerank-v3.5"}, 404, "available: minilm"),
        ({"rank_fields": ["text"]}, 422, "rank_fields"),
    ],
)
def test_invalid_rerank_requests_are_refused(
    shared_stack: tuple[Running, ChatServer], fields: dict[str, object], status: int, words: str
) -> None:
    running, _ = shared_stack
    response = running.post("/v1/rerank", json={"query": "kelp", "documents": TEXTS, **fields})
    assert response.status_code == status and words in response.json()["error"]["message"]


def test_the_openai_client_raises_not_found_for_an_unknown_encoder(stack: Stack) -> None:
    running, _ = stack()
    with pytest.raises(openai.NotFoundError, match="minilm"):
        running.client().embeddings.create(model="other", input="a")
