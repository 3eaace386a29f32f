"""Opens the backend of a server for a model SPEC and its adapters; an engine's libraries are imported only for that engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from graph.errors import UserError
from graph.shared.hub import only_in_cache
from serve.engines import kind_of
from serve.engines.chat_backend import ChatBackend
from serve.engines.child import check_adapter_names, public_name


@dataclass(frozen=True)
class VllmOptions:
    """How to start vLLM: the Python of its environment ("": the default) and extra command-line options."""

    python: str = ""
    extra: tuple[str, ...] = ()


def open_backend(spec: str | None, adapters: Sequence[str], vllm: VllmOptions) -> ChatBackend:
    """The backend for `spec`, with `adapters` as further models; UserError if one of them cannot be opened.

    An adapter is FOLDER or NAME=FOLDER (with `gguf:`, also a file), or, with `openai:`, the NAME of a model on the same server.
    """
    if spec is None:
        if adapters:
            raise UserError(f"--adapter {adapters[0]} without --model", "a model to adapt", "give --model SPEC")
        return ChatBackend()
    kind, target = kind_of(spec)
    if kind == "openai":
        return _openai(target, adapters)
    folders = read_adapters(adapters)
    if kind == "gguf":
        from serve.engines.child_backend import LlamaBackend
        from serve.engines.llama import read_llama

        return LlamaBackend(read_llama(target, folders))
    if kind == "openvino":
        return _openvino(target, folders)
    return _hf(target, folders) if kind == "hf" else _vllm(target, folders, vllm)


def read_adapters(adapters: Sequence[str]) -> dict[str, Path]:
    """Paths by name, from NAME=FOLDER, or from FOLDER, whose own name is then used; with `gguf:`, a file may take the folder's place.

    UserError for a missing path, or an empty or repeated name.
    """
    paths: dict[str, Path] = {}
    for text in adapters:
        before, sign, after = text.partition("=")
        path = Path(after if sign else text).expanduser()
        name = before if sign else path.resolve().name
        if not path.exists() or not name:
            raise UserError(
                f"--adapter {text}: {path} does not exist, or the name is empty",
                "NAME=FOLDER of a LoRA adapter",
                "check the path and the name",
            )
        if name in paths:
            expected = f"a name other than {name!r}, which is already in use"
            raise UserError(f"--adapter {text}", expected, "give NAME=FOLDER")
        paths[name] = path
    return paths


def _openai(target: str, adapters: Sequence[str]) -> ChatBackend:
    from serve.engines.openai_api import key_of_environment, split_target
    from serve.engines.openai_backend import OpenAIBackend, escape_known_tokens

    name, url = split_target(target)
    if assigned := [adapter for adapter in adapters if "=" in adapter]:
        raise UserError(f"--adapter {assigned[0]}", "the adapter's name on the server at the URL", "leave out =FOLDER")
    return OpenAIBackend(url, key_of_environment(), {model: model for model in (name, *adapters)}, escape_known_tokens)


def _hf(target: str, adapters: dict[str, Path]) -> ChatBackend:
    from serve.engines.hf_open import open_hf
    from serve.engines.local_backend import LocalBackend

    name = public_name(target)
    check_adapter_names(name, adapters)
    return LocalBackend({name: open_hf(target), **{each: open_hf(str(path)) for each, path in adapters.items()}})


def _openvino(target: str, adapters: dict[str, Path]) -> ChatBackend:
    from serve.engines.local_backend import LocalBackend
    from serve.engines.openvino import open_openvino

    if adapters:
        remedy = "serve them with gguf: or hf:, or merge one (modegraph train export --merge)"
        raise UserError(f"--adapter {next(iter(adapters))} with openvino:{target}", "a model without adapters", remedy)
    return LocalBackend({public_name(target): open_openvino(target)})


def _vllm(target: str, adapters: dict[str, Path], options: VllmOptions) -> ChatBackend:
    from serve.engines.child_backend import VllmBackend
    from serve.engines.vllm import default_python, read_spec

    spec = read_spec(target, adapters, options.python or default_python(), options.extra)
    if not Path(spec.model).is_dir():
        only_in_cache(spec.model, f"vllm:{target}")
    return VllmBackend(spec)
