"""`eval retrieval --selectors` with a real vLLM server on CPU: the cost of selecting with a model, as counted by the server.

Runs only if tests/vllm.py finds vLLM.
"""

import json
from pathlib import Path

import pytest

from tests.commands import run
from tests.places import EXAMPLES
from tests.vllm import serving, with_vllm
from train.run.settings import TinySettings
from train.tiny import train_tiny

pytestmark = with_vllm
LIMIT = 3


def tiny_model(folder: Path) -> Path:
    """A Llama trained for two steps, with a context window that is long enough for every prompt."""
    sizes = {"vocabulary": 600, "layers": 1, "heads": 2, "context_tokens": 8192, "steps": 2}
    train_tiny(TinySettings(texts=str(EXAMPLES / "documents"), output=str(folder / "tiny"), **sizes))
    return folder / "tiny"


def test_only_the_llm_selector_calls_the_model_and_the_server_counts_its_calls(tmp_path: Path) -> None:
    index = tmp_path / "index"
    assert run("index", EXAMPLES / "documents", "--out", index).exit_code == 0
    with serving(tiny_model(tmp_path), max_tokens=8192) as server:
        before = server.requests_served()
        arguments = [
            "eval",
            "retrieval",
            index,
            "--questions",
            EXAMPLES / "questions.jsonl",
            "--limit",
            LIMIT,
        ]
        arguments += ["--modes", "local", "--selectors", "threshold", "llm", "--model", server.spec, "--json"]
        result = run(*arguments)
        served = server.requests_served() - before
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["systems"]
    assert found["threshold"]["calls/query"] == found["threshold"]["tokens/query"] == 0
    assert found["llm"]["calls/query"] > 1 and found["llm"]["tokens/query"] > 100
    assert served > LIMIT * found["llm"]["calls/query"], (
        "the server also counts the selections whose precision is measured"
    )


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevent requests to the hub."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
