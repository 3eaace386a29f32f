"""What a newcomer reads while a command starts: our own lines and what is wrong, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.places import ROOT

LOGGED = """
import logging
from serve.app import log_to_stderr
log_to_stderr()
logging.getLogger("sentence_transformers").info("Loading SentenceTransformer model from here")
logging.getLogger("modegraph.serve").info("index: generation 2 is in use")
logging.getLogger("anyone").warning("the disk is full")
logging.getLogger("bitsandbytes.backends.cpu.ops").warning("another thing")
"""
OPENED = """
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
print("a fetch shows no progress" if are_progress_bars_disabled() else "a fetch shows progress")
"""
WRONG = """
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
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=True)


def test_others_lines_are_logged_only_when_something_is_wrong() -> None:
    lines = [line.split(" ", 2)[2] for line in run(LOGGED).stderr.splitlines()]
    assert lines == ["INFO index: generation 2 is in use", "WARNING the disk is full", "WARNING another thing"]


@pytest.mark.slow
def test_opening_a_model_prints_nothing_and_a_fetch_would(tiny_llama: Path, tiny_adapter: Path) -> None:
    pytest.importorskip("bitsandbytes")
    done = run(OPENED, "--help", tiny_llama, tiny_adapter)
    assert done.stderr == "" and done.stdout.endswith("a fetch shows progress\n")


def test_a_wrong_name_is_reported_before_anything_heavy_is_imported() -> None:
    *lines, torch = run(WRONG, HF_HUB_OFFLINE="1").stdout.splitlines()
    assert len(lines) == 2 and all(
        line.startswith("hf:my-ms: no such folder, not in the hub's cache") for line in lines
    )
    assert torch == "False"
