"""`modegraph mcp` as a real process, asked by the protocol's own client; the model's server is a stand-in."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import CallToolResult

from graph.build.build import build_index
from graph.retrieve import RetrieveSettings
from graph.shared.config import parse_settings
from graph.shared.modes import DEFAULT_MODE
from graph.store.settings import IndexSettings
from serve.http.shared.settings import ServerSettings
from serve.mcp import build_mcp
from tests.corpora import ISLES
from tests.fakes import HashEncoder, ScriptedModel, chat_server
from tests.places import ROOT

QUESTION = "Who built the Lantern?"
SAID = "###Reason: The yard did [1], says [9]. ###Answer: the Marlow Yard [2]"
TEXTS = {document.source: document.text for document in ISLES}
START = """
import sys
from tests.fakes import HashEncoder
import graph.encode.encoder, modegraph.cli
graph.encode.encoder.open_encoder = lambda spec: HashEncoder()
print("noise before the protocol", file=sys.stderr)
sys.argv[0] = "modegraph"
modegraph.cli.main()
"""
"""The program itself, its encoder the tests' own: opening the real one takes longer than all else here."""


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mcp") / "index"
    settings = parse_settings(IndexSettings, {"min_similarity": 0.1}, "test")
    build_index(folder, ISLES, settings, lambda spec: HashEncoder())
    return folder


def process(*arguments: object) -> StdioServerParameters:
    environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PATH": os.environ["PATH"]}
    words = ["-c", START, "mcp", *map(str, arguments)]
    return StdioServerParameters(command=sys.executable, args=words, env=environment, cwd=str(ROOT))


async def tools_and_answers(
    server: StdioServerParameters, calls: list[tuple[str, dict[str, object]]]
) -> tuple[list[str], list[CallToolResult]]:
    async with Client(stdio_client(server)) as client:
        listed = await client.list_tools()
        answers = [await client.call_tool(name, arguments) for name, arguments in calls]
        return [tool.name for tool in listed.tools], answers


@pytest.fixture(scope="module")
def answered(index: Path) -> Iterator[tuple[list[str], list[CallToolResult]]]:
    calls: list[tuple[str, dict[str, object]]] = [
        ("retrieve", {"question": QUESTION, "k": 2}),
        ("explain", {"question": QUESTION, "mode": "hops"}),
        ("ask", {"question": QUESTION}),
        ("retrieve", {"question": "  "}),
        ("retrieve", {"question": QUESTION, "mode": "hosp"}),
        ("retrieve", {"question": QUESTION, "k": 10**9}),
        ("retrieve", {"question": QUESTION, "where": ["source=nothing"]}),
        ("nonsense", {}),
        ("retrieve", {"question": QUESTION, "where": ["source=ada"], "mode": "dense"}),
    ]
    with chat_server(lambda body, number: SAID) as upstream:
        yield anyio.run(tools_and_answers, process(index, "--model", f"openai:tiny@{upstream.url}"), calls)


def test_passages_have_offsets_that_slice_their_documents(answered: tuple[list[str], list[CallToolResult]]) -> None:
    tools, answers = answered
    assert tools == ["retrieve", "explain", "ask"]
    found = answers[0].structured_content
    assert found is not None and len(found["passages"]) == 2 and not answers[0].is_error
    for passage in found["passages"]:
        assert TEXTS[passage["source"]][passage["start"] : passage["end"]] == passage["text"]


def test_every_passage_is_explained(answered: tuple[list[str], list[CallToolResult]]) -> None:
    told = answered[1][1].structured_content
    assert told is not None and told["mode"] == "hops" and told["ways"]
    assert all(way["steps"] and way["source"] in TEXTS for way in told["ways"])


def test_an_answer_cites_only_what_was_read(answered: tuple[list[str], list[CallToolResult]]) -> None:
    told = answered[1][2].structured_content
    assert told is not None and told["answer"] == "the Marlow Yard [2]" and told["removed"] == [9]
    assert told["reason"] == "The yard did [1], says."
    for cited in told["citations"]:
        assert TEXTS[cited["source"]][cited["start"] : cited["end"]] == cited["text"]
    assert [cited["number"] for cited in told["citations"]] == [1, 2]


def test_what_is_wrong_is_told_and_the_server_lives_on(answered: tuple[list[str], list[CallToolResult]]) -> None:
    *_, empty, mode, many, nowhere, unknown, after = answered[1]
    for answer, told in (
        (empty, "empty"),
        (mode, "hops"),
        (many, "100"),
        (nowhere, "source=nothing"),
        (unknown, "nonsense"),
    ):
        text = answer.content[0].text  # type: ignore[union-attr]
        assert answer.is_error and told in text and "Traceback" not in text, text
    assert not after.is_error and after.structured_content is not None
    assert {passage["source"] for passage in after.structured_content["passages"]} == {"ada"}


def test_without_a_model_nothing_can_be_asked(index: Path) -> None:
    async def listed(folder: Path, model: ScriptedModel | None) -> list[str]:
        server = build_mcp(folder, model, 64, lambda spec: HashEncoder())
        return [tool.name for tool in await server.list_tools()]

    assert anyio.run(listed, index, None) == ["retrieve", "explain"]
    assert anyio.run(listed, index, ScriptedModel(lambda request: "")) == ["retrieve", "explain", "ask"]


def test_a_changed_index_is_taken_up(index: Path, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    settings = parse_settings(IndexSettings, {"min_similarity": 0.1}, "test")
    build_index(folder, ISLES[:2], settings, lambda spec: HashEncoder())

    async def sources(server: object) -> set[str]:
        async with Client(server) as client:  # type: ignore[arg-type]
            before = await client.call_tool("retrieve", {"question": "Tarn", "k": 9, "mode": "dense"})
            build_index(folder, ISLES, settings, lambda spec: HashEncoder())
            after = await client.call_tool("retrieve", {"question": "Tarn", "k": 9, "mode": "dense"})
        assert before.structured_content is not None and after.structured_content is not None
        assert len(before.structured_content["passages"]) == 2
        return {passage["source"] for passage in after.structured_content["passages"]}

    assert anyio.run(sources, build_mcp(folder, None, 64, lambda spec: HashEncoder())) == set(TEXTS)


def test_a_missing_index_is_one_line_and_nothing_on_standard_output(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "modegraph", "mcp", str(tmp_path / "nowhere")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 2 and done.stdout == "" and "nowhere" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_a_search_needs_is_loaded_before_the_first_call(index: Path) -> None:
    """The client only reads the list of tools; the encoder is at work all the same."""
    encoder = HashEncoder()

    async def listed() -> None:
        async with Client(build_mcp(index, None, 64, lambda spec: encoder)) as client:
            await client.list_tools()
            with anyio.fail_after(30):
                while not encoder.seen:
                    await anyio.sleep(0.01)

    anyio.run(listed)
    assert encoder.seen


def test_every_door_has_the_same_mode_unless_one_is_named(index: Path) -> None:
    async def tools() -> dict[str, str]:
        server = build_mcp(index, ScriptedModel(lambda request: ""), 64, lambda spec: HashEncoder())
        return {tool.name: tool.input_schema["properties"]["mode"]["default"] for tool in await server.list_tools()}

    assert {RetrieveSettings().mode, ServerSettings().mode} == {DEFAULT_MODE} == {"auto"}
    assert anyio.run(tools) == {"retrieve": "auto", "explain": "auto", "ask": "auto"}
