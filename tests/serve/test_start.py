"""The output of a command while it starts: only lines of modegraph and warnings of libraries. Each command runs in a separate process."""

import os
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from serve.engines.child import free_port
from tests.processes import answers, modegraph, until

LOG = """
import logging
from serve.app import log_to_stderr
log_to_stderr()
logging.getLogger("sentence_transformers").info("Loading SentenceTransformer model from here")
logging.getLogger("modegraph.serve").info("index: generation 2 is in use")
logging.getLogger("anyone").warning("the disk is full")
logging.getLogger("bitsandbytes.backends.cpu.ops").warning("a slow kernel")
"""
OPEN_MODELS = """
import sys
from modegraph.cli import main
try:
    main()
except SystemExit:
    pass
from serve.app import log_to_stderr
log_to_stderr()
import bitsandbytes.backends.cpu.ops as kernels
kernels.logger.warning("Failed to load CPU gemm_4bit_forward from kernels-community: %s.", "none")
from serve.engines import open_model
for model in sys.argv[2:]:
    open_model(f"hf:{model}")
from huggingface_hub.utils import are_progress_bars_disabled
print("a download shows no progress" if are_progress_bars_disabled() else "a download shows progress")
"""
OPEN_WRONG_NAME = """
import sys
from graph.errors import UserError
from serve.engines.open_backend import VllmOptions, open_backend
from serve.engines import open_model
for attempt in (open_model, lambda spec: open_backend(spec, (), VllmOptions())):
    try:
        attempt("hf:my-ms")
    except UserError as problem:
        print(problem)
print("torch" in sys.modules)
"""


def run(program: str, *arguments: object, **environment: str) -> "subprocess.CompletedProcess[str]":
    variables = {**os.environ, **environment}
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=True)


def test_messages_of_other_libraries_are_logged_only_if_they_are_warnings() -> None:
    lines = [line.split(" ", 2)[2] for line in run(LOG).stderr.splitlines()]
    assert lines == ["INFO index: generation 2 is in use", "WARNING the disk is full", "WARNING a slow kernel"]


@pytest.mark.slow
def test_opening_a_model_prints_nothing_although_a_download_would_show_progress(
    tiny_llama: Path, tiny_adapter: Path
) -> None:
    pytest.importorskip("bitsandbytes")
    done = run(OPEN_MODELS, "--help", tiny_llama, tiny_adapter)
    assert done.stderr == "" and done.stdout.endswith("a download shows progress\n")


def test_a_wrong_name_is_reported_before_torch_is_imported() -> None:
    *lines, has_torch = run(OPEN_WRONG_NAME, HF_HUB_OFFLINE="1").stdout.splitlines()
    assert len(lines) == 2 and all(
        line.startswith("hf:my-ms: no such folder, not in the hub's cache") for line in lines
    )
    assert has_torch == "False"


@pytest.mark.slow
def test_with_writable_a_new_folder_is_served_as_an_empty_index_that_accepts_documents(tmp_path: Path) -> None:
    index, port = tmp_path / "new", free_port()
    command = modegraph("serve", index, "--port", port)
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 2 and "no index at" in refused.stderr and not index.exists()
    process = subprocess.Popen([*command, "--writable"], stderr=subprocess.PIPE, text=True)
    try:
        url = f"http://127.0.0.1:{port}"
        until(lambda: answers(f"{url}/ready"), 240, process)
        with httpx2.Client(base_url=url, trust_env=False, timeout=60) as client:
            found = client.post("/v1/retrieve", json={"query": "When was the Heron built?"}).json()
            assert found["passages"] == []
            document = {"source": "heron.md", "title": "Heron", "text": "The Heron was built in 1911."}
            assert client.post("/v1/documents", json={"documents": [document]}).status_code == 200
            found = client.post("/v1/retrieve", json={"query": "When was the Heron built?"}).json()
            assert [each["text"] for each in found["passages"]] == [document["text"]]
    finally:
        process.terminate()
        _, lines = process.communicate(timeout=60)
    assert f"{index}: a new, empty index" in lines
