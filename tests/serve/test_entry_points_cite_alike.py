"""In every mode and at every entry point (command line, HTTP, MCP, Python), the same reply is shown with the same citations."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from mcp import Client
from typer.testing import CliRunner

from graph.index.index import open_index
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.retrieve import MODES, retrieve
from serve.cli import register
from serve.pipeline import answer_from
from tests.fakes import HashEncoder, ScriptedModel, chat_server
from tests.serve.http.running import Running, serving
from tests.serve.mcp.clients import with_client

QUESTION = "When was the Lantern built by the Marlow Yard, and where was Ada Marlow born?"
PASSAGES = 3
GONE = (
    *(
        "［9］",
        "[12345]",
        "[p. 9]",
        "【9†source】",
        "\\[99\\]",
        "[^9]",
        "〔9〕",
        "[\u200b99]",
        "[&#57;]",
        "&#91;98&#93;",
        "[٩]",
    ),
)
"""Ways to cite a passage that is not there."""
MENDED = {"[1, 9]": "[1]", "［2］": "[2]", "【3†source】": "[3]", "\\[1\\]": "[1]", "[^2]": "[2]", "[p. 3]": "[3]"}
"""Ways to cite passages that are there, and how they are shown."""
PLAIN = ("a[0]=b[99]", "`x[9]`", "as in [2019] UKSC 5 it was held", "(see above)", "f(x) = [x]")
REASON = "It says " + ", ".join([*GONE, *MENDED]) + "."
ANSWER = "1911 [1]; " + "; ".join([*PLAIN, *GONE, *MENDED, "[[7]7]", "[2-9]", "[1-9]", "[1][x]"]) + "; the end"
SAID = f"###Reason: {REASON} ###Answer: {ANSWER}"


@dataclass(frozen=True)
class Shown:
    """What a reader gets to see."""

    reason: str
    answer: str
    cited: tuple[int, ...]
    removed: tuple[int, ...]


def by_python(folder: Path, mode: str) -> Shown:
    index = open_index(folder, lambda spec: HashEncoder())
    evidence = retrieve(index, QUESTION, RetrieveSettings.model_validate({"mode": mode, "top_k": PASSAGES}))
    made = answer_from(evidence, PASSAGES, None, ScriptedModel(lambda request: SAID), 500)
    return Shown(made.reason, made.answer, tuple(made.citations), made.removed)


def by_command(folder: Path, mode: str) -> Shown:
    app = typer.Typer()
    app.callback()(lambda: None)
    register(app, lambda spec, ledger=None: ScriptedModel(lambda request: SAID))
    words = ["ask", str(folder), QUESTION, "--mode", mode, "--top-k", str(PASSAGES), "--model", "m", "--json"]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    made = json.loads(done.stdout)
    return Shown(made["reason"], made["answer"], tuple(map(int, made["citations"])), tuple(made["removed"]))


async def by_mcp(client: Client, mode: str) -> Shown:
    called = await client.call_tool("ask", {"question": QUESTION, "mode": mode, "k": PASSAGES})
    made = called.structured_content
    assert made is not None and not called.is_error
    return Shown(
        made["reason"], made["answer"], tuple(one["number"] for one in made["citations"]), tuple(made["removed"])
    )


def body(mode: str, stream: bool) -> dict[str, Any]:
    turns = [{"role": "user", "content": QUESTION}]
    return {"model": "tiny", "messages": turns, "stream": stream, "retrieval": {"mode": mode, "k": PASSAGES}}


def by_http(running: Running, mode: str) -> Shown:
    made = running.post("/v1/chat/completions", json=body(mode, False)).json()["choices"][0]["message"]
    return shown_by([made])


def by_stream(running: Running, mode: str) -> Shown:
    lines = running.post("/v1/chat/completions", json=body(mode, True)).text.splitlines()
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    return shown_by([choice["delta"] for event in events for choice in event["choices"]])


def shown_by(parts: list[dict[str, Any]]) -> Shown:
    """What a reader sees of a message, given whole or as its deltas."""
    reason, answer = ("".join(part.get(name) or "" for part in parts) for name in ("reasoning_content", "content"))
    cited = tuple(one["number"] for one in parts[-1]["citations"])
    return Shown(reason, answer, cited, tuple(parts[-1]["removed"]))


@pytest.fixture(scope="module")
def running(hashed_isles: Path) -> Iterator[Running]:
    with chat_server(lambda body, number: SAID) as upstream, serving(hashed_isles, f"openai:tiny@{upstream.url}") as up:
        yield up


@pytest.fixture(scope="module")
def answered_by_mcp(running: Running) -> dict[str, Shown]:
    async def every_mode(client: Client) -> dict[str, Shown]:
        return {mode: await by_mcp(client, mode) for mode in MODES}

    return with_client(running, "2026-07-28", every_mode)


@pytest.mark.usefixtures("open_hashed")
@pytest.mark.parametrize("mode", MODES)
def test_a_reply_is_shown_with_the_same_citations_at_every_entry_point(
    hashed_isles: Path, running: Running, answered_by_mcp: dict[str, Shown], mode: str
) -> None:
    expected = by_python(hashed_isles, mode)
    assert by_command(hashed_isles, mode) == expected
    assert answered_by_mcp[mode] == expected
    assert by_http(running, mode) == expected
    assert by_stream(running, mode) == expected
    assert set(expected.cited) == {1, 2, 3} and {9, 99, 12345, 98, 7} <= set(expected.removed)
    assert min(expected.removed) > PASSAGES
    both = f"{expected.reason} {expected.answer}"
    for hostile in GONE:
        assert hostile not in both, hostile
    for plain in PLAIN:
        assert plain in expected.answer, plain
    assert "[1][x]" not in expected.answer, "a link in Markdown clients"
    for part in (expected.reason, expected.answer):
        for written, mended in MENDED.items():
            assert written not in part and mended in part, written
