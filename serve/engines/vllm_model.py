"""`vllm:` as a language model of any command: a server of our own, started when the model is opened and gone with this process.

The supervisor of `modegraph serve` (vllm.py) restarts its child and waits without blocking; a command needs neither.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
import weakref
from collections.abc import Mapping
from pathlib import Path

from graph.checkpoints.adapter import adapter_base
from graph.encode.weights import ADAPTER_CONFIG, model_name
from graph.pretrained.cache import resolve
from graph.shared.console import say
from graph.shared.errors import UserError
from graph.shared.hub import only_in_cache
from serve.engines.openai_api import OpenAIModel
from serve.engines.vllm import (
    LEASH,
    POLL_S,
    VllmSpec,
    command_of,
    environment_of,
    free_port,
    new_key,
    on_cpu,
    read_spec,
)
from serve.engines.vllm_template import as_trained

PYTHON = "MODEGRAPH_VLLM_PYTHON"
IN_FLIGHT = 128
"""Requests at once: what vLLM is good at is many sequences in one batch."""


PATIENCE_S = 3600.0
"""For one reply. Whoever asks again too soon doubles the work: a busy CPU takes many minutes for a batch of long replies, and a server
that has ended is noticed at once."""


class VllmServer:
    """A running server of a model and its adapters, until `close` or the end of this process, however that comes (leash.py)."""

    def __init__(self, spec: VllmSpec) -> None:
        self.name, self.key = spec.name, new_key()
        port = free_port()
        self.url = f"http://127.0.0.1:{port}/v1"
        handle, log = tempfile.mkstemp(prefix="modegraph-vllm-", suffix=".log")
        self.log = Path(log)
        with os.fdopen(handle, "wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(LEASH), *command_of(spec, port)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=environment_of(spec, self.key),
                start_new_session=True,
            )
        atexit.register(self.close)
        say(f"starting vLLM for {spec.name}")
        self._wait(spec)

    def close(self) -> None:
        """Let go of the leash, and wait until the server has gone."""
        atexit.unregister(self.close)
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()

    def _wait(self, spec: VllmSpec) -> None:
        while self._process.poll() is None:
            try:
                with urllib.request.urlopen(self.url.replace("/v1", "/health"), timeout=2.0):
                    return
            except OSError:
                time.sleep(POLL_S)
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        said = [line for line in lines if "Error" in line or "No module" in line] or lines or ["nothing in its log"]
        raise UserError(
            f"vllm:{spec.model}: vLLM ended before it answered ({said[-1].strip()[:300]})",
            f"a vLLM that starts with {spec.python}",
            f"set {PYTHON} to the Python of vLLM's environment, and see {self.log}",
        )


class VllmModel(OpenAIModel):
    """A model of a server of our own, which goes when the model is let go of."""

    def __init__(self, name: str, server: VllmServer, served_as: str) -> None:
        super().__init__(name, server.url, server.key, served_as, IN_FLIGHT, PATIENCE_S)
        weakref.finalize(self, server.close)


_OPEN: weakref.WeakValueDictionary[tuple[str, str], VllmModel] = weakref.WeakValueDictionary()
"""By model and Python: who writes and who judges may be one model, which takes its memory once."""


def open_vllm(target: str) -> VllmModel:
    """A model's or adapter's folder, or a hub name, behind a server of our own, the one that runs if any; UserError when vLLM does not start."""
    key = (resolve(target), _python())
    model = _OPEN.get(key)
    if model is None:
        model = _OPEN[key] = _started(target)
    return model


def _started(target: str) -> VllmModel:
    folder = Path(resolve(target)).expanduser()
    if (folder / ADAPTER_CONFIG).is_file():
        name = folder.resolve().name
        server = VllmServer(spec_of(adapter_base(str(folder)), {name: folder}))
    else:
        server = VllmServer(spec_of(target, {}))
        name = server.name
    return VllmModel(model_name(resolve(target)), server, name)


def spec_of(target: str, adapters: Mapping[str, Path]) -> VllmSpec:
    """What to run, by the Python that the environment names, or by this one; asks no hub for what the cache has.

    On a CPU it starts at once (30 s): compiling first takes minutes, which a command's calls do not win back.
    """
    from graph.checkpoints.load import read_tokenizer

    extra = ("--enforce-eager",) if on_cpu() else ()
    spec = read_spec(target, adapters, _python(), extra)
    cached = not Path(spec.model).is_dir() and only_in_cache(spec.model, f"vllm:{target}")
    return as_trained(spec, read_tokenizer(spec.model, f"vllm:{target}", local_files_only=cached))


def _python() -> str:
    """The Python that has vLLM."""
    return os.environ.get(PYTHON) or sys.executable
