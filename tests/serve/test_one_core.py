"""A server in front of an engine in another process computes with one thread, and does not change the environment that the engine inherits.

A server that runs its model or verifier with torch uses every core."""

import json
import os
import subprocess
import sys

import pytest

from serve.cli_serve import computes_here

PROBE = """
import json, os, sys, threading
from serve.cli_serve import computes_here, load_single_threaded
load_single_threaded("numpy")
computes_here("reader", "")
assert not {"faiss", "torch"} & set(sys.modules)
load_single_threaded("faiss", "torch")
import faiss, torch
counts = []
other = threading.Thread(target=lambda: counts.append(torch.get_num_threads()))
other.start(), other.join()
print(json.dumps([torch.get_num_threads(), *counts, faiss.omp_get_max_threads(), os.environ.get("OMP_NUM_THREADS")]))
"""


@pytest.mark.parametrize(("setting", "expected"), [(None, [1, 1, 1, None]), ("2", [2, 2, 2, "2"])])
def test_one_thread_is_used_unless_the_environment_sets_another_number(
    setting: str | None, expected: list[object]
) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    environment |= {"OMP_NUM_THREADS": setting} if setting else {}
    done = subprocess.run([sys.executable, "-c", PROBE], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == expected


@pytest.mark.parametrize(
    ("model", "verifier", "openvino", "here"),
    [
        ("reader", "", False, True),
        ("reader", "", True, False),
        ("hf:any", "", True, True),
        ("gguf:any", "", False, False),
        ("gguf:any", "support", False, True),
        ("gguf:any", "support", True, False),
        ("gguf:any", "hf:support", True, True),
        (None, "", False, False),
    ],
)
def test_computes_here_is_true_only_if_torch_runs_the_model_or_the_verifier(
    model: str | None, verifier: str, openvino: bool, here: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("serve.engines", "graph.answer.model_verifier"):
        monkeypatch.setattr(f"{module}.on_cpu", lambda: True)
    monkeypatch.setattr("serve.engines.openvino_ir.is_installed", lambda: openvino)
    monkeypatch.setattr("serve.engines.llama.is_installed", lambda: False)
    assert computes_here(model, verifier) == here
