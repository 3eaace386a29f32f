"""Engines by model SPEC. A SPEC names a kind of engine and the model to open; the command line passes it on unchanged.

`ModelOnWorkers` is one model with a copy on each worker. The ledger is written by the caller's process (serve/ledger.py): a call
whose worker is lost is repeated, a stored call never."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from operator import attrgetter, methodcaller
from pathlib import Path
from typing import Any

from graph.errors import UserError
from graph.models import openvino_ir
from graph.models.catalogue import ADAPTERS, MODELS
from graph.models.checkpoint import on_cpu
from graph.types import Completion, CompletionRequest, LanguageModel, Message, Workers
from graph.workers.engines import THIS_PROCESS
from serve.types import Engine

OpenEngine = Callable[[str], Engine]
ENGINE_PROPERTIES = attrgetter("name", "form", "batch_size", "in_flight")


class ModelOnWorkers:
    """The Engine that `opener` opens for `spec`, on workers."""

    def __init__(self, spec: str, opener: OpenEngine, workers: Workers) -> None:
        """Ask one worker for the model's name, answer form, batch size and concurrent calls; UserError if it cannot be opened there."""
        self._call, self._workers = partial(_query_local_copy, spec, opener), workers
        self.name, self.form, self.batch_size, in_flight = self._ask(ENGINE_PROPERTIES)
        self.in_flight = in_flight * workers.models

    def complete(self, requests: Sequence[CompletionRequest]) -> list[Completion]:
        completions: list[Completion] = self._ask(methodcaller("complete", requests))
        return completions

    def count_tokens(self, text: str) -> int:
        return int(self._ask(methodcaller("count_tokens", text)))

    def window(self) -> int | None:
        window: int | None = self._ask(methodcaller("window"))
        return window

    def prompt_tokens(self, messages: Sequence[Message]) -> int:
        return int(self._ask(methodcaller("prompt_tokens", messages)))

    def _ask(self, query: Callable[[Engine], Any]) -> Any:
        return next(iter(self._workers.map(self._call, [query], needs="model")))


def _query_local_copy(spec: str, opener: OpenEngine, query: Callable[[Engine], Any]) -> Any:
    return query(_cached_engine(spec, opener))


@cache
def _cached_engine(spec: str, opener: OpenEngine) -> Engine:
    return opener(spec)


NAMES = (*(name for name, adapter in ADAPTERS.items() if adapter.answers), *MODELS)
"""The models of the catalogue that answer questions; none needs a kind of engine before its name."""
FORMS = f"hf:PATH_OR_NAME, gguf:FILE, openvino:FOLDER, vllm:PATH_OR_NAME, openai:NAME@URL, {', '.join(NAMES)}"
KINDS = ("hf", "gguf", "openvino", "vllm", "openai")


def open_model(spec: str | Sequence[str], ledger: Path | None = None, workers: Workers | None = None) -> LanguageModel:
    """The model that `spec` names; with `ledger`, every call that ends with "stop" is stored in that file and never repeated.

    Several SPECs must name servers of one model; each call goes to one of them. An hf: model is opened by each of the `workers`, unless they are this
    process; any other model is opened by this process.
    Raises UserError for an unknown kind, a model that cannot be opened, or a file that is not a ledger.
    """
    if not isinstance(spec, str):
        engine = open_servers(spec)
    elif workers is None or workers is THIS_PROCESS or kind_of(spec)[0] != "hf":
        engine = open_engine(spec)
    else:
        engine = ModelOnWorkers(spec, open_engine, workers)
    if ledger is None:
        return engine
    from serve.ledger import Ledger

    return Ledger(engine, ledger)


def open_servers(specs: Sequence[str]) -> Engine:
    """One engine for several servers of one model; UserError for a SPEC of a different kind or model."""
    for spec in specs:
        if kind_of(spec)[0] != "openai":
            found = f"model {spec!r} together with {len(specs) - 1} more"
            expected = "several servers of one model, each openai:NAME@URL"
            raise UserError(found, expected, "name one model, or only servers of one model")
    from serve.engines.openai_api import open_pool

    return open_pool([kind_of(spec)[1] for spec in specs])


def open_engine(spec: str) -> Engine:
    """The engine that `spec` names; its libraries are imported only here."""
    kind, target = kind_of(spec)
    if kind == "hf":
        from serve.engines.hf_open import open_hf

        return open_hf(target)
    if kind == "gguf":
        from serve.engines.llama import open_llama

        return open_llama(target)
    if kind == "openvino":
        from serve.engines.openvino import open_openvino

        return open_openvino(target)
    if kind == "openai":
        from serve.engines.openai_api import open_openai

        return open_openai(target)
    from serve.engines.vllm import open_vllm

    return open_vllm(target)


def kind_of(spec: str) -> tuple[str, str]:
    """The kind of engine that a SPEC names, and the model for that engine to open.

    UserError for a SPEC that has none of the FORMS, or names both a catalogue model and a folder.
    """
    if spec in NAMES:
        if Path(spec).is_dir():
            found = f"model {spec!r}: a model of the catalogue, but also a folder in the working directory"
            remedy = f"give hf:./{spec} for the folder; for the catalogue's model, rename the folder"
            raise UserError(found, "a name that means only one of the two", remedy)
        kind = fastest_kind()
        return "hf" if spec in ADAPTERS and kind != "openvino" else kind, spec
    kind, _, target = spec.partition(":")
    if kind not in KINDS or not target:
        raise UserError(f"model {spec!r}: no such model", f"one of {FORMS}", "for example hf:Qwen/Qwen3-0.6B")
    return kind, target


def fastest_kind() -> str:
    """The engine for a catalogue model that is named without a kind: the fastest one installed (docs/log.md has the figures).

    On a GPU this is transformers; on a CPU, OpenVINO, else llama.cpp, else transformers.
    """
    if not on_cpu():
        return "hf"
    if openvino_ir.is_installed():
        return "openvino"
    from serve.engines import llama

    return "gguf" if llama.is_installed() else "hf"
