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
from graph.retrieve.retrieve import retrieve
from graph.shared.modes import MODES
from serve.cli import register
from serve.pipeline import answer_from
from tests.fakes import HashEncoder, ScriptedModel, chat_server
from tests.serve.http.running import Running, events_of, serving
from tests.serve.mcp.clients import with_client

QUESTION = "When was the Lantern built by the Marlow Yard, and where was Ada Marlow born?"
TOP_K = 3
CITATIONS_OF_NO_PASSAGE = (
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
)
"""Citations of passages that do not exist, in all notations; they are removed."""
NORMALISED_CITATIONS = {
    "[1, 9]": "[1]",
    "［2］": "[2]",
    "【3†source】": "[3]",
    "\\[1\\]": "[1]",
    "[^2]": "[2]",
    "[p. 3]": "[3]",
}
"""Citations of passages that exist, and the form in which they are shown."""
NOT_CITATIONS = ("a[0]=b[99]", "`x[9]`", "as in [2019] UKSC 5 it was held", "(see above)", "f(x) = [x]")
"""Texts with brackets that are not citations and are left unchanged."""
REASON = "It says " + ", ".join([*CITATIONS_OF_NO_PASSAGE, *NORMALISED_CITATIONS]) + "."
ANSWER = (
    "1911 [1]; "
    + "; ".join([*NOT_CITATIONS, *CITATIONS_OF_NO_PASSAGE, *NORMALISED_CITATIONS, "[[7]7]", "[2-9]", "[1-9]", "[1][x]"])
    + "; the end"
)
REPLY = f"###Reason: {REASON} ###Answer: {ANSWER}"


@dataclass(frozen=True)
class View:
    """The parts of a reply that a reader sees."""

    reason: str
    answer: str
    cited: tuple[int, ...]
    removed: tuple[int, ...]


def by_python(folder: Path, mode: str) -> View:
    index = open_index(folder, lambda spec: HashEncoder())
    evidence = retrieve(index, QUESTION, RetrieveSettings.model_validate({"mode": mode, "top_k": TOP_K}))
    answer = answer_from(evidence, TOP_K, None, ScriptedModel(lambda request: REPLY), 500)
    return View(answer.reason, answer.answer, tuple(answer.citations), answer.removed)


def by_command(folder: Path, mode: str) -> View:
    app = typer.Typer()
    app.callback()(lambda: None)
    register(app, lambda spec, ledger=None: ScriptedModel(lambda request: REPLY))
    words = ["ask", str(folder), QUESTION, "--mode", mode, "--top-k", str(TOP_K), "--model", "m", "--json"]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    answer = json.loads(done.stdout)
    return View(answer["reason"], answer["answer"], tuple(map(int, answer["citations"])), tuple(answer["removed"]))


async def by_mcp(client: Client, mode: str) -> View:
    result = await client.call_tool("ask", {"question": QUESTION, "mode": mode, "k": TOP_K})
    content = result.structured_content
    assert content is not None and not result.is_error
    return View(
        content["reason"],
        content["answer"],
        tuple(each["number"] for each in content["citations"]),
        tuple(content["removed"]),
    )


def body(mode: str, stream: bool) -> dict[str, Any]:
    turns = [{"role": "user", "content": QUESTION}]
    return {"model": "tiny", "messages": turns, "stream": stream, "retrieval": {"mode": mode, "k": TOP_K}}


def by_http(running: Running, mode: str) -> View:
    message = running.post("/v1/chat/completions", json=body(mode, False)).json()["choices"][0]["message"]
    return view_of([message])


def by_stream(running: Running, mode: str) -> View:
    events = events_of(running.post("/v1/chat/completions", json=body(mode, True)))
    return view_of([choice["delta"] for event in events for choice in event["choices"]])


def view_of(parts: list[dict[str, Any]]) -> View:
    """The view of a message, which is given whole or as deltas."""
    reason, answer = ("".join(part.get(name) or "" for part in parts) for name in ("reasoning_content", "content"))
    cited = tuple(each["number"] for each in parts[-1]["citations"])
    return View(reason, answer, cited, tuple(parts[-1]["removed"]))


@pytest.fixture(scope="module")
def running(hashed_isles: Path) -> Iterator[Running]:
    with (
        chat_server(lambda body, number: REPLY) as upstream,
        serving(hashed_isles, f"openai:tiny@{upstream.url}") as up,
    ):
        yield up


@pytest.fixture(scope="module")
def views_by_mcp(running: Running) -> dict[str, View]:
    async def every_mode(client: Client) -> dict[str, View]:
        return {mode: await by_mcp(client, mode) for mode in MODES}

    return with_client(running, "2026-07-28", every_mode)


@pytest.mark.long
@pytest.mark.usefixtures("open_hashed")
@pytest.mark.parametrize("mode", MODES)
def test_a_reply_is_shown_with_the_same_citations_at_every_entry_point(
    hashed_isles: Path, running: Running, views_by_mcp: dict[str, View], mode: str
) -> None:
    expected = by_python(hashed_isles, mode)
    assert by_command(hashed_isles, mode) == expected
    assert views_by_mcp[mode] == expected
    assert by_http(running, mode) == expected
    assert by_stream(running, mode) == expected
    assert set(expected.cited) == {1, 2, 3} and {9, 99, 12345, 98, 7} <= set(expected.removed)
    assert min(expected.removed) > TOP_K
    shown = f"{expected.reason} {expected.answer}"
    for citation in CITATIONS_OF_NO_PASSAGE:
        assert citation not in shown, citation
    for text in NOT_CITATIONS:
        assert text in expected.answer, text
    assert "[1][x]" not in expected.answer, "[1][x] should be removed, because Markdown clients would show it as a link"
    for part in (expected.reason, expected.answer):
        for variant, normalised in NORMALISED_CITATIONS.items():
            assert variant not in part and normalised in part, variant
