"""LlamaIndex's classes as clients of a live server, run with the Python interpreter that MODEGRAPH_LLAMA_INDEX_PYTHON names.

llama-index-llms-openai needs openai below 3 and this project needs openai 3, so they cannot be installed together.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from graph.models.catalogue import SMOLLM2, is_fetched
from tests.places import ROOT
from tests.serve.conftest import Stack
from tests.serve.http.routes.test_responses import QUESTION, REPLY
from tests.serve.http.running import serving

PYTHON = os.environ.get("MODEGRAPH_LLAMA_INDEX_PYTHON", "")
CLIENT = ROOT / "tests" / "serve" / "http" / "routes" / "llama_index_client.py"
pytestmark = pytest.mark.skipif(
    not PYTHON, reason="MODEGRAPH_LLAMA_INDEX_PYTHON names no Python with LlamaIndex (make test-clients)"
)


def client_output(url: str, model: str = "tiny") -> Any:
    """The parsed output of llama_index_client.py."""
    environment = {**os.environ, "OPENAI_API_KEY": "none"}
    environment.pop("PYTHONPATH", None)
    process = subprocess.run(
        [PYTHON, "-P", str(CLIENT), url, QUESTION, model],
        capture_output=True,
        text=True,
        env=environment,
        timeout=550,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-2000:]
    return json.loads(process.stdout)


def test_llama_index_reads_answers_citations_streams_and_vectors(stack: Stack) -> None:
    running, _ = stack(REPLY)
    results = client_output(running.url)
    found = running.post("/v1/retrieve", json={"query": QUESTION, "k": 3}).json()["passages"]
    urls = [f"{running.url}/#read/{each['source']}/{each['start']}-{each['end']}" for each in found]
    citations = [["file_citation", found[n]["source"], urls[n], f"[{n + 1}]"] for n in (1, 0)]
    output = results["responses"]
    assert output["text"] == output["streamed"] == "😀 the Marlow Yard [2][1]."
    assert output["cited"] == output["streamed_cited"] == citations
    assert output["thought"] == ["The yard did [1], says."] and output["calls"] == ["file_search_call"]
    assert results["chat"]["text"] == results["chat"]["streamed"] == "😀 the Marlow Yard [2][1]."
    assert sorted(results["chat"]["citations"]) == sorted(results["chat"]["streamed_citations"]) == [1, 2]
    (vector,) = running.client().embeddings.create(model="minilm", input="Tarn").data
    assert results["vectors"] == [len(vector.embedding)] * 2


@pytest.mark.slow
@pytest.mark.skipif(not is_fetched(SMOLLM2), reason="smollm2 is not fetched: modegraph models get smollm2")
def test_replies_of_a_real_small_model_are_read_whole_and_streamed(shared_isles: Path) -> None:
    with serving(shared_isles, "hf:smollm2", request_timeout_s=280) as running:
        results = client_output(running.url, "smollm2")
    for output, field in ((results["responses"], "cited"), (results["chat"], "citations")):
        assert output["text"] and output["text"] == output["streamed"]
        assert sorted(output[field]) == sorted(output[f"streamed_{field}"])
    assert all(
        kind == "file_citation" and mark in ("", "[1]", "[2]", "[3]")
        for kind, *_, mark in results["responses"]["cited"]
    )
    assert set(results["chat"]["citations"]) <= {1, 2, 3}
