"""`modegraph mcp` as a real process, called by the client of the MCP package; the model server is a fake."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import CallToolResult

from graph.build.build import build_index
from graph.retrieve.parts.query import RetrieveSettings
from graph.shared.modes import DEFAULT_MODE
from serve.http.settings import ServerSettings
from serve.mcp.tools import SearchArguments
from tests.corpora import ISLES
from tests.fakes import HashEncoder, chat_server
from tests.places import ROOT
from tests.processes import modegraph
from tests.serve.conftest import SETTINGS
from tests.serve.mcp.clients import with_client

QUESTION = "Who built the Lantern?"
REPLY = "###Reason: The yard did [1], says [9]. ###Answer: the Marlow Yard [2]"
TEXTS = {document.source: document.text for document in ISLES}


@pytest.fixture(scope="module")
def index(shared_isles: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(shared_isles, tmp_path_factory.mktemp("mcp") / "index")


def server_parameters(*arguments: object) -> StdioServerParameters:
    environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PATH": os.environ["PATH"]}
    command, *words = modegraph("mcp", *arguments)
    return StdioServerParameters(command=command, args=words, env=environment, cwd=str(ROOT))


async def list_and_call_tools(
    server: StdioServerParameters, calls: list[tuple[str, dict[str, object]]]
) -> tuple[list[str], list[CallToolResult]]:
    async with Client(stdio_client(server)) as client:
        listed = await client.list_tools()
        results = [await client.call_tool(name, arguments) for name, arguments in calls]
        return [tool.name for tool in listed.tools], results


@pytest.fixture(scope="module")
def tools_and_results(index: Path) -> Iterator[tuple[list[str], list[CallToolResult]]]:
    calls: list[tuple[str, dict[str, object]]] = [
        ("search", {"query": QUESTION, "k": 2}),
        ("ask", {"question": QUESTION}),
        ("search", {"query": QUESTION, "mode": "hosp"}),
        ("fetch", {"id": "ada"}),
        ("add_document", {"source": "gull", "text": "Gull Rock is a lighthouse."}),
        ("search", {"query": "Gull Rock", "where": ["source=gull"]}),
    ]
    with chat_server(lambda body, number: REPLY) as upstream:
        arguments = (index, "--model", f"openai:tiny@{upstream.url}", "--writable")
        yield anyio.run(list_and_call_tools, server_parameters(*arguments), calls)


def test_the_tools_are_listed_and_can_be_called(tools_and_results: tuple[list[str], list[CallToolResult]]) -> None:
    tools, (found, answer, wrong, fetched, added, found_again) = tools_and_results
    assert tools == ["search", "fetch", "explain", "ask", "add_document"]
    assert found.structured_content is not None and len(found.structured_content["results"]) == 2
    for each in found.structured_content["results"]:
        assert TEXTS[each["source"]][each["start"] : each["end"]] == each["text"]
        assert each["url"] == f"modegraph://index/{each['source']}", (
            "over stdio, the address should not be that of a page"
        )
    assert answer.structured_content is not None and answer.structured_content["answer"] == "the Marlow Yard [2]"
    assert (
        answer.structured_content["removed"] == [9] and answer.structured_content["reason"] == "The yard did [1], says."
    )
    text = wrong.content[0].text  # type: ignore[union-attr]
    assert wrong.is_error and "hops" in text and "Traceback" not in text, text
    assert fetched.structured_content is not None and fetched.structured_content["text"] == TEXTS["ada"]
    assert added.structured_content == {"source": "gull", "written": 1}
    assert found_again.structured_content is not None and len(found_again.structured_content["results"]) == 1


def test_the_older_protocol_version_works_too(index: Path) -> None:
    async def version_and_tool_count() -> tuple[str, int]:
        async with Client(stdio_client(server_parameters(index)), mode="legacy") as client:
            return client.protocol_version, len((await client.list_tools()).tools)

    assert anyio.run(version_and_tool_count) == ("2025-11-25", 3)


def test_a_changed_index_is_reloaded(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    build_index(folder, ISLES[:2], SETTINGS, lambda spec: HashEncoder())
    server = server_parameters(folder)

    async def sources() -> set[str]:
        async with Client(stdio_client(server)) as client:
            arguments = {"query": "Tarn", "k": 9, "mode": "dense"}
            before = await client.call_tool("search", arguments)
            assert before.structured_content is not None and len(before.structured_content["results"]) == 2
            build_index(folder, ISLES, SETTINGS, lambda spec: HashEncoder())
            found: set[str] = set()
            with anyio.fail_after(60):
                while len(found) < len(TEXTS):
                    await anyio.sleep(0.2)
                    after = await client.call_tool("search", arguments)
                    assert after.structured_content is not None
                    found = {each["source"] for each in after.structured_content["results"]}
            return found

    assert anyio.run(sources) == set(TEXTS)


def test_a_missing_index_is_reported_only_on_standard_error(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "modegraph", "mcp", str(tmp_path / "nowhere")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 2 and done.stdout == "" and "nowhere" in done.stderr
    assert "Traceback" not in done.stderr


def test_over_http_the_command_serves_only_mcp_and_health(index: Path) -> None:
    server = server_parameters(index, "--http", "--port", 0)
    command = [server.command, *server.args]
    environment = {**(server.env or {}), "MODEGRAPH_API_KEY": "k"}
    with subprocess.Popen(command, env=environment, cwd=ROOT, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert running.stderr is not None
            line = next(line for line in running.stderr if "stop with Ctrl-C" in line)
            address = re.search(r" at (http://127\.0\.0\.1:\d+)/mcp ", line)
            assert address is not None, line
            url, headers = address[1], {"X-Api-Key": "k"}
            assert httpx2.get(f"{url}/v1/documents", headers=headers).status_code == 404
            assert httpx2.post(f"{url}/mcp", json={}).status_code == 401
            assert "<html" not in httpx2.get(url).text, "the page that asks for a key should not be served either"

            async def count_found(client: Client) -> int:
                result = await client.call_tool("search", {"query": QUESTION, "k": 3})
                assert result.structured_content is not None
                return len(result.structured_content["results"])

            assert with_client(url, "2026-07-28", count_found, headers) == 3
        finally:
            running.terminate()


def test_retrieval_and_server_settings_have_the_same_default_mode() -> None:
    """The MCP tools have no default mode: they use the mode of the server's settings."""
    assert SearchArguments(query=QUESTION).mode is None
    assert {RetrieveSettings().mode, ServerSettings().mode} == {DEFAULT_MODE} == {"auto"}
