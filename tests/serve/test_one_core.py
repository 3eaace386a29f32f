"""A server in front of an engine in another process computes with one thread, and does not change the environment that the engine inherits."""

import json
import os
import subprocess
import sys

import pytest

PROBE = """
import json, os, threading
from serve.cli_serve import load_single_threaded
load_single_threaded()
import faiss, torch
counts = []
other = threading.Thread(target=lambda: counts.append(torch.get_num_threads()))
other.start(), other.join()
print(json.dumps([torch.get_num_threads(), *counts, faiss.omp_get_max_threads(), os.environ.get("OMP_NUM_THREADS")]))
"""


@pytest.mark.parametrize(("setting", "expected"), [(None, [1, 1, 1, None]), ("2", [2, 2, 2, "2"])])
def test_one_thread_unless_the_environment_says_otherwise(setting: str | None, expected: list[object]) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    environment |= {"OMP_NUM_THREADS": setting} if setting else {}
    done = subprocess.run([sys.executable, "-c", PROBE], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == expected
