"""`vllm:` as a language model of any command: a server of our own, started when the model is opened and gone with this process."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Mapping
from pathlib import Path

from graph.checkpoints.adapter import adapter_base, answer_form
from graph.encode.weights import ADAPTER_CONFIG, model_name
from graph.pretrained.cache import resolve
from graph.shared.hub import only_in_cache
from serve.engines.child import OwnServer, close_with
from serve.engines.openai_api import OpenAIModel
from serve.engines.vllm import PYTHON, VllmSpec, as_trained, on_cpu, read_spec

IN_FLIGHT = 128
"""Requests at once: what vLLM is good at is many sequences in one batch."""
PATIENCE_S = 3600.0
"""For one reply. Whoever asks again too soon doubles the work: a busy CPU takes many minutes for a batch of long replies, and a server
that has ended is noticed at once."""


class VllmModel(OpenAIModel):
    """A model of a server of our own, which goes when the model is let go of."""

    def __init__(self, name: str, server: OwnServer, served_as: str) -> None:
        super().__init__(name, server.url, server.key, served_as, IN_FLIGHT, PATIENCE_S)
        close_with(self, server)


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
        server = OwnServer(spec_of(adapter_base(str(folder)), {name: folder}))
    else:
        server = OwnServer(spec_of(target, {}))
        name = server.name
    server.wait()
    model = VllmModel(model_name(resolve(target)), server, name)
    model.form = answer_form(folder)
    return model


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
