"""`gguf:` as a language model: llama.cpp's own server as a child process (child.py, llama_server.py), with memory-mapped weights.

SPEC: gguf:FILE, gguf:FOLDER (an exported model, or an exported adapter on the base model that it names), or gguf:NAME of the catalogue.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai

from graph.answer.template import WITHOUT_THINKING
from graph.errors import UserError
from graph.models.catalogue import MODELS, gguf_of, read_json
from graph.models.checkpoint import RUN_RECORD, answer_form, model_name
from graph.types import Completion, CompletionRequest, Message
from serve.engines.child import CommandServer, check_adapter_names
from serve.engines.openai_api import OpenAIModel

SERVER = Path(__file__).with_name("llama_server.py")
KEY = "MODEGRAPH_LLAMA_KEY"
PACKAGE = "xllamacpp"
MAGIC = b"GGUF"
SLOTS = 4
"""Concurrent requests. More would gain nothing on a CPU: a single prefill uses all cores."""
CONTEXT_TOKENS = 8192
"""Context tokens shared by all running requests; one request may use them all."""
CACHE_MIB = 256
"""Cache for prompts beyond those in the slots, so that a second question about the same passages needs no new prefill. Used only without adapters:
llama.cpp restores a prompt's cache no matter which adapter computed it (llama.cpp issue 26207)."""
REPLY_TIMEOUT_S = 3600.0
ADAPTER_PREFIX = "adapter-"
"""The prefix of the file names of exported adapters."""


@dataclass(frozen=True)
class LlamaSpec:
    """A server to run: a GGUF file, the name it is served under, GGUF adapters by name, and the default adapter ("": the file without adapters)."""

    file: Path
    name: str
    adapters: Mapping[str, Path]
    default: str = ""
    engine = "llama.cpp"
    remedy = f"check that the file is a language model that {PACKAGE} supports"

    @property
    def spec_text(self) -> str:
        return f"gguf:{self.file}"

    def command(self, port: int) -> list[str]:
        """The command line of the server."""
        options = {
            "file": str(self.file),
            "name": self.name,
            "port": port,
            "adapters": [str(file) for file in self.adapters.values()],
            "context_tokens": CONTEXT_TOKENS,
            "slots": SLOTS,
            "threads": thread_count(),
            "cache_mib": 0 if self.adapters else CACHE_MIB,
        }
        return [sys.executable, "-P", str(SERVER), json.dumps(options)]

    def environment(self, key: str) -> dict[str, str]:
        """This process's environment and the key."""
        return {**os.environ, KEY: key}

    def extra(self, name: str) -> dict[str, Any]:
        """Extra fields of a request for the model `name`, besides OpenAI's: template arguments as in training, and the scale of each adapter."""
        lora = [{"id": index, "scale": float(adapter == name)} for index, adapter in enumerate(self.adapters)]
        return {"chat_template_kwargs": WITHOUT_THINKING, **({"lora": lora} if lora else {})}


def thread_count() -> int:
    """Threads for the model: OMP_NUM_THREADS, if it is a positive number, else one for each core that this process may use."""
    requested = os.environ.get("OMP_NUM_THREADS", "")
    return int(requested) if requested.isdecimal() and int(requested) else len(os.sched_getaffinity(0))


def is_installed() -> bool:
    """Whether the package that provides llama.cpp is installed."""
    return importlib.util.find_spec(PACKAGE) is not None


def read_llama(target: str, adapters: Mapping[str, Path]) -> LlamaSpec:
    """The checked spec of `target` with `adapters` (GGUF files or folders); UserError for a missing package or file, another format, or equal names."""
    if not is_installed():
        found = f"gguf:{target}: the package {PACKAGE} is not installed"
        raise UserError(
            found, "this package, which contains llama.cpp", "pip install 'modegraph[cpu]', or use hf: instead"
        )
    if target in MODELS and not Path(target).exists():
        file, name = gguf_of(MODELS[target]), target
    else:
        file = gguf_file(Path(target).expanduser(), f"gguf:{target}", f", or one of {', '.join(MODELS)}")
        name = file.stem if file == Path(target).expanduser() else Path(target).resolve().name
    adapter_files = {adapter: gguf_file(path, f"--adapter {adapter}={path}") for adapter, path in adapters.items()}
    check_adapter_names(name, adapter_files)
    default = ""
    if (base := _base_of(file)) is not None:
        default, adapter_files = name, {name: file, **adapter_files}
        file, name = base
        check_adapter_names(name, adapter_files)
    return LlamaSpec(file.resolve(), name, {each: path.resolve() for each, path in adapter_files.items()}, default)


def gguf_file(path: Path, label: str, others: str = "") -> Path:
    """The GGUF file at `path`, or the only one in that folder; UserError for none, for several, or for another kind of file."""
    files = sorted(path.glob("*.gguf")) if path.is_dir() else [path]
    if len(files) != 1 or not files[0].is_file():
        what = f"{len(files)} GGUF files" if len(files) != 1 else "no such file"
        expected = f"a GGUF file or a folder with one{others}"
        raise UserError(f"{label}: {what}", expected, "check the path (`modegraph train export --gguf f16` writes one)")
    with files[0].open("rb") as data:
        if data.read(len(MAGIC)) != MAGIC:
            raise UserError(f"{files[0]}: not a GGUF file", f"one that begins with {MAGIC.decode()}", "check the path")
    return files[0]


def _base_of(file: Path) -> tuple[Path, str] | None:
    """The base model of an exported adapter and its name, from run.json in its folder; None for a full model. UserError for a base outside the catalogue."""
    if not file.name.startswith(ADAPTER_PREFIX):
        return None
    base = str(read_json(file.parent / RUN_RECORD).get("base_model", ""))
    if base in MODELS:
        return gguf_of(MODELS[base]), base
    found = f"gguf:{file}: an adapter of {base or 'an unknown base'}"
    remedy = f"give the base as the model: --model gguf:BASE --adapter NAME={file}"
    raise UserError(found, f"one of {', '.join(MODELS)} as its base", remedy)


class LlamaModel(OpenAIModel):
    """A model behind llama.cpp's server; `extra` is sent with each request. The server counts tokens."""

    def __init__(self, name: str, url: str, key: str, served_as: str, extra: Mapping[str, Any]) -> None:
        super().__init__(name, url, key, served_as, SLOTS, REPLY_TIMEOUT_S, extra)

    def count_tokens(self, text: str) -> int:
        """Tokens of `text` alone, without special tokens; estimated while the server does not answer."""
        try:
            return len(self._post("/tokenize", {"content": text})["tokens"])
        except openai.APIError:
            return super().count_tokens(text)

    def prompt_tokens(self, messages: Sequence[Message]) -> int:
        """Tokens of a chat, by the model's own template; estimated while the server does not answer."""
        try:
            chat = {**self.extra, "messages": [vars(turn) for turn in messages]}
            text = self._post("/apply-template", chat)["prompt"]
            return len(self._post("/tokenize", {"content": text, "add_special": True, "parse_special": True})["tokens"])
        except openai.APIError:
            return super().prompt_tokens(messages)


class ServedLlamaModel(LlamaModel):
    """A model with its own server, which stops when the model is garbage-collected.

    The server loads in the background; the first use waits for it, and raises UserError if it does not start.
    """

    def __init__(self, name: str, spec: LlamaSpec, served_as: str) -> None:
        self._server = CommandServer(spec)
        super().__init__(name, self._server.url, self._server.key, served_as, spec.extra(served_as))
        self.key = self._server.key
        weakref.finalize(self, self._server.close)

    @property
    def has_exited(self) -> bool:
        """Whether the server's process has exited, so that the model has to be opened again."""
        return self._server.has_exited

    def wait(self) -> None:
        """Return once the server answers; UserError when it does not start."""
        self._server.wait()

    def complete(self, requests: Sequence[CompletionRequest]) -> list[Completion]:
        self.wait()
        return super().complete(requests)

    def count_tokens(self, text: str) -> int:
        self.wait()
        return super().count_tokens(text)

    def prompt_tokens(self, messages: Sequence[Message]) -> int:
        self.wait()
        return super().prompt_tokens(messages)

    def window(self) -> int | None:
        self.wait()
        return super().window()


_OPEN: weakref.WeakValueDictionary[tuple[Path, ...], ServedLlamaModel] = weakref.WeakValueDictionary()
"""Open models by their files: a generator and a judge with the same model share its memory."""


def open_llama(target: str) -> ServedLlamaModel:
    """A model with its own server, or the open model that has the same files and whose server runs; UserError as in `read_llama`."""
    spec = read_llama(target, {})
    files = (spec.file, *spec.adapters.values())
    model = _OPEN.get(files)
    if model is None or model.has_exited:
        name = "+".join(model_name(str(file)) for file in files)
        model = _OPEN[files] = ServedLlamaModel(name, spec, spec.default or spec.name)
        model.form = answer_form(files[-1].parent)
    return model
