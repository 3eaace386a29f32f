"""Retrieval with a real vLLM server on CPU: every mode that calls a model runs from end to end, and if the server is killed, the evidence is still shown.

Runs only if tests/vllm.py finds vLLM.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from graph.build.build import build_index
from graph.index.index import Index, open_index
from graph.models.encoder import open_encoder
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.retrieve import retrieve
from graph.shared.modes import Mode
from graph.store.index_settings import IndexSettings
from serve.engines.openai_api import open_openai
from tests.commands import run
from tests.corpora import guild_documents
from tests.vllm import Server, relay_that_kills, serving, with_vllm
from train.run.settings import TinySettings
from train.tiny import train_tiny

pytestmark = with_vllm
QUESTION = "How do the guilds of the islands live?"


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vllm")
    texts = folder / "texts.jsonl"
    rows = [{"id": d.source, "title": d.title, "text": d.text} for d in guild_documents()]
    texts.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    train_tiny(
        TinySettings(
            texts=str(texts),
            output=str(folder / "tiny"),
            vocabulary=600,
            layers=1,
            heads=2,
            context_tokens=8192,
            steps=2,
        )
    )
    return folder / "tiny"


@pytest.fixture
def server(tiny_model: Path) -> Iterator[Server]:
    with serving(tiny_model, max_tokens=8192) as running:
        yield running


@pytest.fixture(scope="module")
def guilds(tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp("guilds") / "index"
    build_index(folder, guild_documents(), IndexSettings(), open_encoder)
    return open_index(folder)


def calls_of(index: Index, server: Server, mode: Mode) -> int:
    """Retrieve in a mode, check that the trace counts as many calls as the server, and return their number."""
    before = server.requests_served()
    settings = RetrieveSettings(mode=mode, top_k=4, selector="threshold" if mode == "plan" else "llm")
    found = retrieve(index, QUESTION, settings, open_openai(server.spec.removeprefix("openai:")))
    assert found.trace.stopped == "" and len(found.passages) == 4
    assert found.trace.model_calls == server.requests_served() - before > 0
    assert found.trace.prompt_tokens > 0 and found.trace.completion_tokens > 0 and found.trace.seconds > 0
    return found.trace.model_calls


def test_modes_that_call_a_model_run_end_to_end_and_show_their_evidence_if_the_server_is_killed(
    guilds: Index, server: Server
) -> None:
    calls = {mode: calls_of(guilds, server, mode) for mode in ("local", "global", "plan")}
    assert calls["local"] > 1 and calls["global"] > 1
    with relay_that_kills(server, completions=1) as url:
        arguments = ["ask", str(guilds.folder), QUESTION, "--mode", "global", "--selector", "llm", "--top-k", "4"]
        result = run(*arguments, "--model", f"openai:tiny@{url}")
    assert server.process.poll() is not None
    assert result.exit_code == 1
    assert "the retrieval stopped before it was done: openai:tiny" in result.stderr and "no answer" in result.stderr
    assert len(re.findall(r"^\d\. \d\.\d+ · Member ", result.stdout, re.MULTILINE)) == 4
