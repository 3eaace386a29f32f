"""Three keys, two collections, two labels: no route shows the holder of a key anything from a document that the key does not allow.

Every document contains the word of its group (SEA, HILL or MOOR): the tests search everything that a key receives, and everything
that the model receives on its behalf, for the words of the other groups. An operator searches first, so that the cache of evidence is filled.
"""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from graph.feedback import read_feedback
from graph.shared.modes import MODES
from tests.processes import until
from tests.serve.http.shared_server import (
    COLLECTIONS,
    HILL,
    MOOR,
    QUESTIONS,
    SEA,
    Holder,
    SharedServer,
    hidden_collection,
    requests_to_refuse,
    serving_shared,
)
from tests.serve.mcp.clients import VERSIONS, call_tool, with_client


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedServer]:
    with serving_shared(tmp_path_factory.mktemp("shared")) as shared:
        yield shared


def searches(shared: SharedServer, headers: dict[str, str], collection: str, mode: str) -> Iterator[tuple[str, str]]:
    """The answers of every route that searches, to one key in one mode, as (request, text)."""
    post, name = shared.running.post, f"tiny@{collection}"
    for question in QUESTIONS:
        turns = {"model": name, "messages": [{"role": "user", "content": question}], "max_tokens": 64}
        search = {"type": "file_search", "vector_store_ids": [collection], "max_num_results": 20}
        bodies: dict[str, dict[str, Any]] = {
            f"/v1/retrieve?collection={collection}": {"query": question, "mode": mode, "k": 20},
            "/v1/chat/completions": {**turns, "retrieval": {"mode": mode, "k": 20}},
            "/v1/messages": {**turns, "retrieval": {"mode": mode, "k": 20}, "thinking": {"type": "adaptive"}},
            "/v1/responses": {
                "model": name,
                "input": question,
                "tools": [search],
                "include": ["file_search_call.results"],
            },
            f"/v1/vector_stores/{collection}/search": {"query": question, "max_num_results": 20},
        }
        for path, body in bodies.items():
            if mode != "auto" and ("responses" in path or "vector_stores" in path):
                continue  # These routes have no field `mode`.
            response = post(path, json=body, headers=headers)
            assert response.status_code == 200, (path, response.text)
            yield f"{path} {mode}", response.text
        request_body = {"query": question, "mode": mode, "k": 20, "use_model": True}
        yield (
            f"use_model {mode}",
            post(f"/v1/retrieve?collection={collection}", json=request_body, headers=headers).text,
        )
        streamed = {**turns, "stream": True, "retrieval": {"mode": mode, "k": 20}}
        yield f"stream {mode}", post("/v1/chat/completions", json=streamed, headers=headers).text


def browse(shared: SharedServer, headers: dict[str, str], collection: str) -> Iterator[tuple[str, str]]:
    """The answers of the routes that do not search, to one key, as (path, text)."""
    at = f"collection={collection}"
    paths = [
        "/v1/models",
        "/ready",
        "/v1/vector_stores",
        f"/v1/vector_stores/{collection}",
        f"/v1/documents?{at}&limit=999",
        f"/v1/documents?{at}&sort=date&descending=true",
        f"/v1/suggestions?{at}",
        f"/v1/questions?{at}&count=200",
    ]
    paths += [f"/v1/graph/layers?{at}", f"/v1/graph/entities?{at}&limit=500", "/openapi.json", "/metrics"]
    paths += [f"/v1/graph/summaries?{at}&layer={layer}" for layer in range(3)]
    paths += [f"/v1/graph/overview?{at}", f"/v1/graph/overview?{at}&limit=3"]
    for word in (SEA, HILL, MOOR):
        paths += [
            f"/v1/documents?{at}&entity=ada%20{word}",
            f"/v1/graph/entities?{at}&q={word}",
            f"/v1/graph/neighbourhood?{at}&kind=entity&id=ada%20{word}&limit=500",
        ]
    documents = shared.running.get(f"/v1/documents?{at}", headers=headers).json()["documents"]
    paths += [f"/v1/graph/neighbourhood?{at}&kind=document&id={quote(each['source'])}&limit=500" for each in documents]
    entities = shared.running.get(f"/v1/graph/entities?{at}&limit=500", headers=headers).json()
    for each in entities:
        paths.append(f"/v1/graph/neighbourhood?{at}&kind=entity&id={quote(each['id'])}&limit=500")
    for path in paths:
        yield path, shared.running.get(path, headers=headers).text


def visible_text(text: str) -> str:
    """The text in lower case, without the questions that it repeats."""
    plain = text.casefold()
    for question in QUESTIONS:
        plain = plain.replace(question.casefold(), "")
    return plain


def hidden_words_in(text: str, holder: Holder) -> list[str]:
    """The words of other groups that a text contains."""
    return [word for word in holder.hidden_words if word in visible_text(text)]


@pytest.mark.parametrize("mode", MODES)
def test_no_mode_finds_documents_hidden_from_the_key(shared: SharedServer, mode: str) -> None:
    for collection in COLLECTIONS:
        assert all(text for _, text in searches(shared, shared.operator, collection, mode))
    for name, holder in shared.holders.items():
        before = len(shared.upstream.requests)
        answers_with_visible_word = 0
        for request, text in searches(shared, holder.headers, holder.collection, mode):
            assert hidden_words_in(text, holder) == [], (name, request)
            answers_with_visible_word += holder.visible_word in visible_text(text)
        assert answers_with_visible_word > 0, f"{name} should find documents that it may see"
        for body in shared.upstream.requests[before:]:
            assert hidden_words_in(json.dumps(body), holder) == [], (
                f"the prompt of the model contains a word hidden from {name}"
            )


def test_browsing_reveals_nothing_about_hidden_documents(shared: SharedServer) -> None:
    for name, holder in shared.holders.items():
        answers_with_visible_word = 0
        for path, text in browse(shared, holder.headers, holder.collection):
            leaked = [word for word in hidden_words_in(text, holder) if word not in path]
            assert leaked == [], (name, path)
            answers_with_visible_word += holder.visible_word in visible_text(text)
        assert answers_with_visible_word > 3, f"{name} should see its documents in more than 3 answers"
    listed = shared.running.get("/v1/vector_stores", headers=shared.holders["label"].headers).json()["data"]
    assert [(each["id"], each["file_counts"]["total"]) for each in listed] == [("isles", 3)]
    ready = shared.running.get("/ready", headers=shared.holders["label"].headers).json()
    assert (ready["documents"], ready["collections"], ready["models"]) == (3, ["isles"], ["tiny"])


@pytest.mark.parametrize("version", VERSIONS)
def test_mcp_reveals_nothing_about_hidden_documents(shared: SharedServer, version: str) -> None:
    """Both versions of the protocol reach the same tools, so all modes are tried in only one of them."""
    modes = ("auto", "global") if version == "legacy" else MODES

    async def texts_shown(client: Client) -> list[str]:
        texts = [str(await client.list_tools()), str(await client.list_resources())]
        for question in QUESTIONS:
            for mode in modes:
                texts.append(str(await call_tool(client, "search", query=question, mode=mode, k=20)))
            texts.append(str(await call_tool(client, "explain", question=question, mode="hops", k=20)))
            texts.append(str(await call_tool(client, "ask", question=question, k=20)))
        return texts

    for name, holder in shared.holders.items():
        texts = with_client(shared.running, version, texts_shown, holder.headers)
        assert [hidden_words_in(text, holder) for text in texts] == [[]] * len(texts), name
        assert sum(holder.visible_word in visible_text(text) for text in texts) > len(texts) // 3


def refusals_of(shared: SharedServer, holder: Holder, collection: str, source: str) -> list[tuple[int, str]]:
    """Status and text of every refusal for a collection and a document, with both names masked."""
    responses = [ask() for ask in requests_to_refuse(shared, holder, collection, source)]
    return [
        (each.status_code, each.text.replace(source, "SOURCE").replace(collection, "COLLECTION")) for each in responses
    ]


def test_hidden_documents_are_refused_like_nonexistent_ones(shared: SharedServer) -> None:
    for name, holder in shared.holders.items():
        for _, source in holder.hidden_documents:
            hidden = refusals_of(shared, holder, hidden_collection(holder), source)
            absent = refusals_of(shared, holder, "zz9z", "sea/nix" if source.startswith("sea") else "nix/ada")
            assert hidden == absent, name
            assert all(status >= 400 for status, _ in hidden), (name, hidden)


@pytest.mark.parametrize("version", VERSIONS)
def test_mcp_refuses_hidden_documents_like_nonexistent_ones(shared: SharedServer, version: str) -> None:
    async def refusals(client: Client, collection: str, source: str) -> list[str]:
        texts = []
        for tool, arguments in (
            ("fetch", {"id": source}),
            ("fetch", {"id": "x", "collection": collection}),
            ("search", {"query": "Who?", "collection": collection}),
            ("ask", {"question": "Who?", "collection": collection}),
            ("ask", {"question": "Who?", "model": f"tiny@{collection}"}),
        ):
            result = await client.call_tool(tool, arguments)
            assert result.is_error
            texts.append(result.content[0].text)  # type: ignore[union-attr]
        for uri in (f"modegraph://{collection}/{source}", f"modegraph://isles/{source}"):
            with pytest.raises(MCPError) as refusal:
                await client.read_resource(uri)
            texts.append(str(refusal.value))
        return [text.replace(source, "SOURCE").replace(collection, "COLLECTION") for text in texts]

    label = shared.holders["label"]
    hidden = with_client(shared.running, version, lambda client: refusals(client, "moors", "hill/ada"), label.headers)
    absent = with_client(shared.running, version, lambda client: refusals(client, "zz9z", "nix/ada"), label.headers)
    assert hidden == absent


def test_a_writer_changes_and_counts_only_documents_that_its_key_allows(shared: SharedServer) -> None:
    writer, label = shared.holders["writer"], shared.holders["label"]
    new = {"documents": [{"source": "hill/new", "text": f"{HILL.title()} has a new mill."}]}
    response = shared.running.post("/v1/documents", json=new, headers=writer.headers)
    assert response.status_code == 200 and response.json()["report"] == {
        "written": 1,
        "unchanged": 0,
        "documents": 4,
        "passages": 4,
    }
    assert shared.running.get("/v1/documents/hill/new", headers=label.headers).status_code == 404
    assert shared.running.get("/v1/documents/hill/new", headers=writer.headers).status_code == 200
    deletion = shared.running.delete("/v1/documents/hill/new", headers=writer.headers)
    assert deletion.json()["report"] == {"deleted": "hill/new", "documents": 3, "passages": 3}
    upload = {"files": ("sea-ada.txt", b"Hello.")}
    assert shared.running.post("/v1/documents/files", files=upload, headers=writer.headers).status_code == 403


def test_feedback_of_one_key_is_hidden_from_another(shared: SharedServer) -> None:
    """All holders give feedback under the same user name, each on answers and passages that the holder may see."""
    users = shared.holders
    for holder in users.values():
        request_body = {"query": f"Who taught {holder.visible_word.title()}?", "k": 1}
        at = f"?collection={holder.collection}"
        found = shared.running.post(f"/v1/retrieve{at}", json=request_body, headers=holder.headers).json()["passages"][
            0
        ]
        entry = {"user": "reader-0001", "consent": True, "question": request_body["query"], "kind": "passage"}
        entry |= {"passage_id": found["id"], "shown_ids": [found["id"]]}
        response = shared.running.post(f"/v1/feedback{at}", json=entry, headers=holder.headers)
        assert response.status_code == 200, response.text
        answer = {"model": "tiny", "text": f"so says {found['text']}"}
        vote = {**entry, "kind": "vote", "answer": answer, "rating": "up"}
        del vote["passage_id"], vote["shown_ids"]
        assert shared.running.post(f"/v1/feedback{at}", json=vote, headers=holder.headers).status_code == 200
    for name, holder in users.items():
        for other in COLLECTIONS:
            for user in ("reader-0001", *(f"{key}/reader-0001" for key in users)):
                text = shared.running.get(f"/v1/feedback/{user}?collection={other}", headers=holder.headers).text
                assert hidden_words_in(text, holder) == [], (name, other, user)
        own = shared.running.get(f"/v1/feedback/reader-0001?collection={holder.collection}", headers=holder.headers)
        assert [each["kind"] for each in own.json()["entries"]] == [
            "passage",
            "vote",
        ] and holder.visible_word in visible_text(own.text)
        others = [key for key in users if key != name]
        for user in (f"{key}/reader-0001" for key in others):
            deletion = shared.running.delete(
                f"/v1/feedback/{user}?collection={holder.collection}", headers=holder.headers
            )
            assert deletion.json() == {"deleted": 0}
    at = "?collection=isles"
    assert shared.running.get(f"/v1/feedback/reader-0001{at}", headers=shared.operator).json() == {"entries": []}
    labelled = shared.running.get(f"/v1/feedback/label/reader-0001{at}", headers=shared.operator).json()["entries"]
    assert len(labelled) == 2, "the operator should be able to read all feedback, under KEY/USER"
    deletion = shared.running.delete(f"/v1/feedback/reader-0001{at}", headers=users["label"].headers)
    assert deletion.json() == {"deleted": 2}
    stored = read_feedback(shared.running.services.collections.live["isles"].folder)
    assert [each.user for each in stored] == ["writer/reader-0001"] * 2


def test_traces_contain_no_names_from_documents_collections_or_users(shared: SharedServer) -> None:
    """This test is the last in the file, so that the spans of many requests have been sent before it; it waits for one more."""
    before = len(shared.collector.bodies)
    shared.running.get("/v1/models", headers=shared.operator)
    until(lambda: len(shared.collector.bodies) > before)
    sent_bytes = b"".join(shared.collector.bodies).lower()
    for word in (SEA, HILL, MOOR, "lantern", "isles", "moors", "reader-0001"):
        assert word.encode() not in sent_bytes
