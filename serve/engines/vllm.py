"""vLLM as a child process (child.py): its command line, its environment, and `vllm:` as a language model for any command.

A command's server starts when the model is opened, and stops when the model is garbage-collected or this process ends."""

from __future__ import annotations

import json
import os
import sys
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from graph.answer.template import WITHOUT_THINKING, leaves_thinking_open, switches_thinking
from graph.errors import UserError
from graph.models.catalogue import resolve
from graph.models.checkpoint import ADAPTER_CONFIG, adapter_base, answer_form, computes_in_bfloat16, model_name, on_cpu
from graph.shared.hub import only_in_cache
from serve.engines.child import CommandServer, check_adapter_names, public_name
from serve.engines.openai_api import OpenAIModel

PYTHON = "MODEGRAPH_VLLM_PYTHON"
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The values that vLLM accepts for --max-lora-rank."""
STRUCTURED_OUTPUTS = {"backend": "xgrammar", "disable_any_whitespace": True}
PARSER = "deepseek_r1"
"""vLLM's name for the parser of replies that begin inside a <think> block, which the prompt has opened."""
WHOLE_PROMPTS = "--no-enable-chunked-prefill"
"""On a CPU, vLLM 0.32 crashes at the first seeded request whose prompt it prefills in chunks ("CPU Generator does not use offset")."""
FLOAT32 = ("--dtype", "float32")
"""vLLM would cast a float32 model to bfloat16. On a CPU without bfloat16 instructions, that makes prefill five times slower (docs/log.md)."""
ONE_PROCESS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
"""On a CPU, vLLM runs in one process: two would busy-wait for each other, which costs a fifth of all processor time."""


@dataclass(frozen=True)
class VllmSpec:
    """A server to run: the model (a folder or a hub name), its served name, adapters by name, the Python of vLLM's environment, further arguments, and the
    default adapter ("": the model without adapters).
    """

    model: str
    name: str
    adapters: Mapping[str, Path]
    python: str
    extra: tuple[str, ...] = ()
    default: str = ""
    engine = "vLLM"
    remedy = f"set {PYTHON} to the Python of vLLM's environment"

    @property
    def spec_text(self) -> str:
        return f"vllm:{self.model}"

    def command(self, port: int) -> list[str]:
        """The command line of the server, which is started as a module because the GPU and the CPU build both have it."""
        command = [self.python, "-m", "vllm.entrypoints.openai.api_server", "--model", self.model]
        command += ["--served-model-name", self.name, "--host", "127.0.0.1", "--port", str(port)]
        command += ["--structured-outputs-config", json.dumps(STRUCTURED_OUTPUTS), "--generation-config", "vllm"]
        if self.adapters:
            rank = str(max_lora_rank(self.adapters))
            modules = [f"{name}={folder.resolve()}" for name, folder in self.adapters.items()]
            command += ["--enable-lora", "--max-lora-rank", rank, "--lora-modules", *modules]
        if on_cpu():
            command += [WHOLE_PROMPTS, *(() if computes_in_bfloat16() else FLOAT32)]
        return [*command, *self.extra]

    def environment(self, key: str) -> dict[str, str]:
        """The environment of the server: its key, offline mode if the model is on disk, and, for a CPU, the cache size and a single process.

        By default vLLM binds its threads to the first cores, which two servers would then share; here they may run on any core.
        """
        return {
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            **(ONE_PROCESS if on_cpu() else {}),
            **os.environ,
            "VLLM_API_KEY": key,
            **({"HF_HUB_OFFLINE": "1"} if Path(self.model).is_dir() else {}),
        }


def read_spec(target: str, adapters: Mapping[str, Path], python: str, extra: Sequence[str]) -> VllmSpec:
    """A checked spec; for an adapter as `target`, that of its base with the adapter as the default.

    UserError for a missing folder, adapter or Python, for a rank above vLLM's limit, or for an adapter with the name of the model.
    """
    folder, name = Path(resolve(target)).expanduser(), public_name(target)
    check_adapter_names(name, adapters)
    if (folder / ADAPTER_CONFIG).is_file():
        base = read_spec(adapter_base(str(folder)), {name: folder, **adapters}, python, extra)
        return replace(base, default=name)
    if not folder.is_dir() and (target.startswith((".", "/", "~")) or target.count("/") > 1):
        raise UserError(f"vllm:{target}: no such folder", "a model's folder or a hub name", "check the path")
    if not os.access(python, os.X_OK):
        remedy = f"check --vllm-python or {PYTHON}"
        raise UserError(f"{python}: no such program", "the Python of vLLM's environment", remedy)
    if adapters:
        max_lora_rank(adapters)
    return VllmSpec(str(folder.resolve()) if folder.is_dir() else target, name, dict(adapters), python, tuple(extra))


def lora_rank(adapter: Path) -> int:
    """The largest rank of a LoRA adapter, from its adapter_config.json; UserError when that cannot be read or names no rank."""
    try:
        config = json.loads((adapter / ADAPTER_CONFIG).read_text(encoding="utf-8"))
        return max(int(config["r"]), *(int(rank) for rank in (config.get("rank_pattern") or {}).values()), 1)
    except (OSError, ValueError, KeyError, TypeError):
        found = f"{adapter}: no readable {ADAPTER_CONFIG} with a rank"
        raise UserError(found, "a LoRA adapter's folder", "check --adapter") from None


def max_lora_rank(adapters: Mapping[str, Path]) -> int:
    """The smallest --max-lora-rank that fits all adapters; UserError when one exceeds vLLM's limit."""
    rank_of = {name: lora_rank(folder) for name, folder in adapters.items()}
    largest = max(rank_of, key=rank_of.__getitem__)
    for rank in RANKS:
        if rank >= rank_of[largest]:
            return rank
    remedy = "merge it into the model (modegraph train export --merge)"
    raise UserError(f"adapter {largest}: rank {rank_of[largest]}", f"at most {RANKS[-1]}", remedy)


def with_training_prompts(spec: VllmSpec, tokenizer: Any) -> VllmSpec:
    """The spec with options that make prompts equal those of training: thinking is off by default, if the template can turn it off (graph/answer/template.py).

    If the template always opens a thinking block, vLLM is configured to remove that block from the answer. The user's options come later on
    the command line and take precedence. UserError for a tokenizer without a template: vLLM would refuse every chat.
    """
    if tokenizer.chat_template is None:
        remedy = "serve its instruct variant, or put a chat_template.jinja next to its tokenizer"
        raise UserError(f"vllm:{spec.model}: its tokenizer has no chat template", "a chat (instruct) model", remedy)
    options = []
    if switches_thinking(tokenizer):
        options.append(f"--default-chat-template-kwargs={json.dumps(WITHOUT_THINKING)}")
    if leaves_thinking_open(tokenizer):
        options.append(f"--reasoning-parser={PARSER}")
    return replace(spec, extra=(*options, *spec.extra))


IN_FLIGHT = 128
"""Concurrent requests: vLLM is fastest with many sequences in one batch."""
REPLY_TIMEOUT_S = 3600.0
"""Timeout for one reply. An early retry would double the work: a busy CPU takes many minutes for a batch of long replies, and a server
that has exited is noticed at once."""


class VllmModel(OpenAIModel):
    """A model with its own server, which stops when the model is garbage-collected."""

    def __init__(self, name: str, server: CommandServer, served_as: str) -> None:
        super().__init__(name, server.url, server.key, served_as, IN_FLIGHT, REPLY_TIMEOUT_S)
        self._server = server
        weakref.finalize(self, server.close)

    @property
    def has_exited(self) -> bool:
        """Whether the server's process has exited, so that the model has to be opened again."""
        return self._server.has_exited


_OPEN: weakref.WeakValueDictionary[tuple[str, str], VllmModel] = weakref.WeakValueDictionary()
"""Open models, keyed by model and Python: a generator and a judge with the same model share one server."""


def open_vllm(target: str) -> VllmModel:
    """The model in a folder (of a model or an adapter) or with a hub name, on its own server; UserError when vLLM does not start.

    A server of this process that already runs the model is reused.
    """
    key = (resolve(target), default_python())
    model = _OPEN.get(key)
    if model is None or model.has_exited:
        model = _OPEN[key] = _start_model(target)
    return model


def _start_model(target: str) -> VllmModel:
    spec = spec_of(target, {})
    server = CommandServer(spec)
    server.wait()
    model = VllmModel(model_name(resolve(target)), server, spec.default or spec.name)
    model.form = answer_form(target)
    return model


def spec_of(target: str, adapters: Mapping[str, Path]) -> VllmSpec:
    """The server to run, with the default Python; a cached model needs no connection to the hub.

    On a CPU, compilation is off: it takes minutes, more than faster generation would save within one command. Without compilation the
    server starts in 30 s.
    """
    from graph.models.load import read_tokenizer

    extra = ("--enforce-eager",) if on_cpu() else ()
    spec = read_spec(target, adapters, default_python(), extra)
    cached = not Path(spec.model).is_dir() and only_in_cache(spec.model, f"vllm:{target}")
    return with_training_prompts(spec, read_tokenizer(spec.model, f"vllm:{target}", local_files_only=cached))


def default_python() -> str:
    """The Python that MODEGRAPH_VLLM_PYTHON names, or else the current one."""
    return os.environ.get(PYTHON) or sys.executable
