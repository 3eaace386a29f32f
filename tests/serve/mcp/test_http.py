"""/mcp of a real server, through the client of the MCP package, with and without a handshake."""

import shutil
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from graph.build.build import build_index
from graph.errors import Unavailable
from graph.types import Document
from serve.server.collections import Collections
from tests.corpora import ISLES
from tests.fakes import HashEncoder, chat_server
from tests.serve.conftest import SETTINGS, Stack
from tests.serve.http.running import Running, serving
from tests.serve.mcp.clients import VERSIONS, call_tool, refusal_of, with_client

QUESTION = "Who built the Lantern?"
WRECKED_QUESTION = "Who wrecked the Lantern?"
UNSUPPORTED_REPLY = "###Reason: none. ###Answer: Casimir Thole wrecked nine ships in 1742 [1]."
CHECK_FIELDS = ("unsupported", "not_checked", "checked")
REPLY = "###Reason: The yard did [1], says [9]. ###Answer: the Marlow Yard [2]"
TEXTS = {document.source: document.text for document in ISLES}
both_versions = pytest.mark.parametrize("mode", VERSIONS)


@pytest.fixture(scope="module")
def running(shared_isles: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = shutil.copytree(shared_isles, tmp_path_factory.mktemp("mcp") / "isles")
    with (
        chat_server(lambda body, number: UNSUPPORTED_REPLY if WRECKED_QUESTION in str(body) else REPLY) as upstream,
        serving(folder, f"openai:tiny@{upstream.url}", writable=True, file_seconds=2) as on,
    ):
        yield on


def failing_with(problem: Exception) -> Callable[..., Any]:
    async def view(*_: object) -> None:
        raise problem

    return view


@both_versions
def test_both_protocol_versions_are_accepted_and_offer_the_same_tools(running: Running, mode: str) -> None:
    async def session(client: Client) -> tuple[str, list[str], list[bool | None]]:
        listed = (await client.list_tools()).tools
        hints = [tool.annotations.read_only_hint for tool in listed if tool.annotations]
        return client.protocol_version, [tool.name for tool in listed], hints

    version, names, read_only = with_client(running, mode, session)
    assert version == VERSIONS[mode]
    assert names == ["search", "fetch", "explain", "ask", "add_document"]
    assert read_only == [True, True, True, True, False]


def test_the_server_reports_the_version_of_modegraph(running: Running) -> None:
    async def session(client: Client) -> str:
        assert client.server_info is not None
        return client.server_info.version

    server_version = with_client(running, "legacy", session)
    assert server_version == version("modegraph") == running.get("/openapi.json").json()["info"]["version"]


@both_versions
def test_search_results_can_be_fetched_and_explained(running: Running, mode: str) -> None:
    async def session(client: Client) -> None:
        found = (await call_tool(client, "search", query=QUESTION, k=2, mode="dense"))["results"]
        assert len(found) == 2
        for each in found:
            text = TEXTS[each["source"]]
            assert text[each["start"] : each["end"]] == each["text"]
            assert each["url"] == f"{running.url}/#read/{each['source']}/{each['start']}-{each['end']}"
            fetched = await call_tool(client, "fetch", id=each["id"])
            assert fetched["text"] == text[each["start"] :] and fetched["length"] == len(text)
        whole = await call_tool(client, "fetch", id="tarn")
        assert (whole["text"], whole["title"], whole["start"]) == (TEXTS["tarn"], "Tarn", 0)
        rest = await call_tool(client, "fetch", id="tarn", start=10)
        assert rest["text"] == TEXTS["tarn"][10:]
        assert (await call_tool(client, "fetch", id="tarn", start=10**6))["text"] == ""
        explanation = await call_tool(client, "explain", question=QUESTION, mode="hops")
        assert explanation["mode"] == "hops" and explanation["ways"]
        assert all(way["steps"] and way["source"] in TEXTS for way in explanation["ways"])

    with_client(running, mode, session)


@both_versions
def test_an_answer_cites_only_passages_of_its_prompt(running: Running, mode: str) -> None:
    async def session(client: Client) -> None:
        answer = await call_tool(client, "ask", question=QUESTION)
        assert (answer["answer"], answer["reason"]) == ("the Marlow Yard [2]", "The yard did [1], says.")
        assert answer["removed"] == [9] and [each["number"] for each in answer["citations"]] == [1, 2]
        for cited in answer["citations"]:
            assert TEXTS[cited["source"]][cited["start"] : cited["end"]] == cited["text"] and not cited["attributed"]
            assert all(cited["text"][each["start"] : each["end"]] == each["text"] for each in cited["quotes"])
        assert "available: tiny" in await refusal_of(client, "ask", question=QUESTION, model="other")

    with_client(running, mode, session)


def test_unsupported_sentences_are_marked_as_in_chat_completions(running: Running) -> None:
    async def session(client: Client) -> dict[str, Any]:
        return await call_tool(client, "ask", question=WRECKED_QUESTION)

    body = {"model": "tiny", "messages": [{"role": "user", "content": WRECKED_QUESTION}]}
    message = running.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]
    answer = with_client(running, "legacy", session)
    assert answer["unsupported"] and answer["checked"] > 0
    assert {name: answer[name] for name in CHECK_FIELDS} == {name: message[name] for name in CHECK_FIELDS}


def test_a_search_finds_as_many_passages_as_the_servers_settings_say_unless_k_is_given(shared_isles: Path) -> None:
    async def session(client: Client) -> list[int]:
        return [
            len((await call_tool(client, "search", query=QUESTION, **k))["results"])
            for k in ({"where": None}, {"k": 1})
        ]

    with serving(shared_isles, None, top_k=2) as running:
        assert with_client(running, "legacy", session) == [2, 1]


def test_the_servers_settings_limit_the_length_of_a_question(shared_isles: Path) -> None:
    async def session(client: Client) -> None:
        assert (await call_tool(client, "search", query="Lantern ".ljust(9_000)))["results"]
        assert "has 9,001 characters" in await refusal_of(client, "search", query="Lantern ".ljust(9_001))

    with serving(shared_isles, None, max_question_chars=9_000) as running:
        with_client(running, "legacy", session)


@pytest.mark.long
@both_versions
def test_errors_are_reported_and_the_server_keeps_answering(running: Running, mode: str) -> None:
    async def session(client: Client) -> None:
        for message, tool, arguments in (
            ("empty", "search", {"query": "  "}),
            ("hops", "search", {"query": QUESTION, "mode": "hosp"}),
            ("100", "search", {"query": QUESTION, "k": 10**9}),
            ("source=nothing", "search", {"query": QUESTION, "where": ["source=nothing"]}),
            ("collection 'moors' is not served here", "search", {"query": QUESTION, "collection": "moors"}),
            ("no document 'nowhere'", "fetch", {"id": "nowhere"}),
            ("Field required", "fetch", {}),
            ("Extra inputs", "fetch", {"id": "tarn", "other": 1}),
            ("no tool 'nonsense'", "nonsense", {}),
            ("lead out of its folder", "add_document", {"source": "../x", "text": "x"}),
            ("no text", "add_document", {"source": "x", "text": "  "}),
        ):
            assert message in await refusal_of(client, tool, **arguments), (tool, arguments)
        assert (await call_tool(client, "fetch", id="ada"))["text"] == TEXTS["ada"]

    with_client(running, mode, session)


def test_errors_of_tools_are_counted_like_those_of_other_routes(
    shared_isles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def session(client: Client) -> tuple[str, str, str]:
        gone = await refusal_of(client, "ask", question=QUESTION)
        monkeypatch.setattr(Collections, "view", failing_with(Unavailable("no database", "one", "start it")))
        stopped = await refusal_of(client, "search", query=QUESTION)
        monkeypatch.setattr(Collections, "view", failing_with(ZeroDivisionError("a fault")))
        return gone, stopped, await refusal_of(client, "search", query=QUESTION)

    with serving(shared_isles, "openai:tiny@http://127.0.0.1:9/v1") as running:
        gone, stopped, failed = with_client(running, "legacy", session)
        assert "does not answer" in gone and "database of the index" in stopped and "the cause is in its log" in failed
        kinds = ("model_unavailable", "store_unavailable", "internal_error")
        assert [running.metric(f'modegraph_errors_total{{kind="{kind}"}}') for kind in kinds] == [1, 1, 1]


@both_versions
def test_documents_are_resources(running: Running, mode: str) -> None:
    async def session(client: Client) -> None:
        listed = (await client.list_resources()).resources
        assert {f"modegraph://isles/{source}" for source in TEXTS} <= {each.uri for each in listed}
        assert (await client.list_resource_templates()).resource_templates[
            0
        ].uri_template == "modegraph://{collection}/{+source}"
        resource = await client.read_resource("modegraph://isles/tarn")
        assert resource.contents[0].text == TEXTS["tarn"]  # type: ignore[union-attr]
        for absent in (
            "modegraph://isles/nowhere",
            "modegraph://moors/tarn",
            "file:///etc/passwd",
            "modegraph://isles/",
        ):
            with pytest.raises(MCPError, match="no resource"):
                await client.read_resource(absent)
        with pytest.raises(MCPError, match="invalid cursor"):
            await client.list_resources(cursor="x")

    with_client(running, mode, session)


@pytest.mark.long
def test_resources_are_listed_in_full_pages_across_collections(tmp_path: Path) -> None:
    documents = [Document(f"n/{number:03}", "", f"Note {number} is short.") for number in range(205)]
    for name, part in (("a", documents[:130]), ("b", documents[130:])):
        build_index(tmp_path / name, part, SETTINGS, lambda spec: HashEncoder())

    async def pages(client: Client) -> list[list[str]]:
        found, cursor = [], None
        while True:
            page = await client.list_resources(cursor=cursor)
            found.append([each.name for each in page.resources])
            cursor = page.next_cursor
            if cursor is None:
                return found

    with serving([tmp_path / "a", tmp_path / "b"], None) as running:
        found = with_client(running, "2026-07-28", pages)
    assert [len(each) for each in found] == [100, 100, 5]
    assert [name for page in found for name in page] == [document.source for document in documents]


@both_versions
def test_a_document_is_added_and_found(running: Running, mode: str) -> None:
    async def session(client: Client) -> None:
        source = f"gull-{mode}"
        new = {"source": source, "title": "Gull Rock", "text": "Gull Rock is a lighthouse.", "collection": ""}
        new["metadata"] = {"year": 1990, "page_starts": [0, 9]}
        assert await call_tool(client, "add_document", **new) == {"source": source, "written": 1}
        assert await call_tool(client, "add_document", **new) == {"source": source, "written": 0}
        where = [f"source={source}"]
        found = await call_tool(client, "search", query="Gull Rock lighthouse", where=where, collection="", mode=None)
        assert [each["text"] for each in found["results"]] == ["Gull Rock is a lighthouse."]
        assert (await call_tool(client, "fetch", id=source))["metadata"] == {"year": 1990}

    with_client(running, mode, session)


@pytest.mark.long
def test_without_a_model_there_is_no_ask_tool_and_without_permission_no_add_tool(shared_isles: Path) -> None:
    async def names(client: Client) -> list[str]:
        assert "no tool 'add_document'" in await refusal_of(client, "add_document", source="x", text="x")
        return [tool.name for tool in (await client.list_tools()).tools]

    with serving(shared_isles, None) as running:
        assert with_client(running, "2026-07-28", names) == ["search", "fetch", "explain"]


def test_mcp_requires_the_key_and_applies_the_limits_of_other_routes(stack: Stack) -> None:
    running, _ = stack(api_key="k", max_body_bytes=2048)
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    accepts = {"Accept": "application/json, text/event-stream"}
    assert running.post("/mcp", json=body, headers=accepts).status_code == 401

    async def tool_count(client: Client) -> int:
        return len((await client.list_tools()).tools)

    for mode in VERSIONS:
        for headers in ({"Authorization": "Bearer k"}, {"X-Api-Key": "k"}):
            assert with_client(running, mode, tool_count, headers) == 4
    with_key = {**accepts, "X-Api-Key": "k"}
    assert running.post("/mcp", json={**body, "params": {"x": "x" * 3000}}, headers=with_key).status_code == 413
    for method in ("GET", "DELETE", "PUT"):
        response = httpx2.request(method, f"{running.url}/mcp", headers=with_key)
        assert (response.status_code, response.headers["allow"]) == (405, "POST")
    assert (
        running.post("/mcp", content=b"{", headers={**with_key, "Content-Type": "application/json"}).status_code == 400
    )
    metrics = running.get("/metrics", headers=with_key).text
    assert 'modegraph_requests_total{route="/mcp",status="200"}' in metrics


def test_requests_from_other_sites_are_refused(stack: Stack) -> None:
    running, _ = stack()
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    for headers in ({"Origin": "https://elsewhere.example"}, {"Host": "elsewhere.example"}):
        assert running.post("/mcp", json=body, headers=headers).status_code == 403
