"""One server with several indexes: a request names its index in its model, vector store or URL, and results never mix two indexes."""

from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from graph.build.build import build_index
from graph.errors import UserError
from graph.types import Document
from serve.app import check_names
from tests.corpora import ISLES
from tests.fakes import HashEncoder, chat_server
from tests.serve.conftest import SETTINGS
from tests.serve.http.running import Running, serving

QUESTION = "Who built the Lantern?"
MOORS = [Document("lantern", "Lantern (inn)", "The Lantern is an inn on Corrow Moor. It was built by Peat & Sons.")]


@pytest.fixture(scope="module")
def two_collections(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server with the collections `isles` and `moors`, each of which contains a document `lantern`."""
    folder = tmp_path_factory.mktemp("two")
    for name, documents in (("isles", ISLES), ("moors", MOORS)):
        build_index(folder / name, documents, SETTINGS, lambda spec: HashEncoder())
    with (
        chat_server(lambda body, number: "###Reason: so. ###Answer: built [1]") as upstream,
        serving([folder / "isles", folder / "moors"], f"openai:tiny@{upstream.url}", writable=True) as running,
    ):
        yield running


def test_each_model_is_offered_for_each_collection(two_collections: Running) -> None:
    client = two_collections.client()
    assert [each.id for each in client.models.list().data] == ["tiny@isles", "tiny@moors"]
    assert client.models.retrieve("tiny@moors").id == "tiny@moors"
    for model, collection in (("tiny@isles", "isles"), ("tiny@moors", "moors")):
        messages = [{"role": "user", "content": QUESTION}]
        completion = client.chat.completions.create(
            model=model, messages=messages, extra_body={"retrieval": {"k": 1, "mode": "dense"}}
        )  # type: ignore[call-overload]
        message = completion.choices[0].message
        assert ("inn" in message.citations[0]["text"]) == (collection == "moors")
        assert message.annotations[0].url_citation.url.startswith(
            f"{two_collections.url}/?collection={collection}#read/"
        )
    for model in ("tiny@nowhere", "other@isles", "tiny@", "@isles"):
        with pytest.raises(openai.NotFoundError, match="available: tiny@isles, tiny@moors"):
            client.chat.completions.create(model=model, messages=[{"role": "user", "content": QUESTION}])
    with pytest.raises(openai.BadRequestError, match="name a collection; available: isles, moors"):
        client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": QUESTION}])


def test_a_vector_store_is_a_collection(two_collections: Running) -> None:
    client = two_collections.client()
    assert [(each.id, each.file_counts.total) for each in client.vector_stores.list().data] == [
        ("isles", 5),
        ("moors", 1),
    ]
    found = client.vector_stores.search("moors", query=QUESTION)
    assert [each.filename for each in found.data] == ["lantern"] and "inn" in found.data[0].content[0].text
    with pytest.raises(
        openai.NotFoundError, match="vector store 'nowhere' is not served here; available: isles, moors"
    ):
        client.vector_stores.search("nowhere", query=QUESTION)

    def results_text(model: str, *stores: str) -> str:
        search = {"type": "file_search", "vector_store_ids": list(stores)}
        response = client.responses.create(
            model=model, input=QUESTION, tools=[search], include=["file_search_call.results"]
        )  # type: ignore[list-item, call-overload]
        return " ".join(each.text for each in response.output[0].results)

    assert "inn" in results_text("tiny", "moors") and "inn" not in results_text("tiny", "isles")
    assert "inn" in results_text("tiny@moors", "moors")
    with pytest.raises(openai.BadRequestError, match="model and vector_store_id name different collections"):
        results_text("tiny@isles", "moors")
    with pytest.raises(openai.BadRequestError, match="only one store can be searched"):
        results_text("tiny", "isles", "moors")


def test_routes_without_a_model_accept_the_name_of_a_collection(two_collections: Running) -> None:
    request_body = {"query": QUESTION, "mode": "dense"}
    for name, sources in (("isles", {each.source for each in ISLES}), ("moors", {"lantern"})):
        assert {
            each["source"] for each in two_collections.get(f"/v1/documents?collection={name}").json()["documents"]
        } == sources
        found = two_collections.post(f"/v1/retrieve?collection={name}", json=request_body).json()["passages"]
        assert {each["source"] for each in found} <= sources and found
        assert two_collections.get(f"/v1/graph/layers?collection={name}").status_code == 200
    ready = two_collections.get("/ready").json()
    assert (ready["documents"], ready["collections"], ready["index"]) == (6, ["isles", "moors"], None)
    for path in ("/v1/documents", "/v1/documents/lantern", "/v1/graph/layers", "/v1/graph/entities"):
        assert two_collections.get(path).json()["error"]["code"] == "which_collection", path
        assert two_collections.get(f"{path}?collection=nowhere").json()["error"]["code"] == "no_such_collection", path


def test_documents_are_written_to_the_named_collection(two_collections: Running) -> None:
    new = {"documents": [{"source": "peat", "text": "Peat is cut on Corrow Moor."}]}
    assert two_collections.post("/v1/documents", json=new).json()["error"]["code"] == "which_collection"
    assert two_collections.post("/v1/documents?collection=moors", json=new).status_code == 200
    assert two_collections.get("/v1/documents/peat?collection=moors").status_code == 200
    assert two_collections.get("/v1/documents/peat?collection=isles").status_code == 404
    numbers = [
        two_collections.metric(f'modegraph_index_generation{{collection="{name}"}}') for name in ("isles", "moors")
    ]
    assert numbers == [1, 2]


def test_two_indexes_with_the_same_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a different name for each index"):
        check_names([tmp_path / "a" / "docs", tmp_path / "docs"])
    with pytest.raises(UserError, match="docs: given twice"):
        check_names([tmp_path / "docs", tmp_path / "a" / ".." / "docs"])
    check_names([tmp_path / "a", tmp_path / "b"])
