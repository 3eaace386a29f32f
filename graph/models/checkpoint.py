"""Properties of a checkpoint, read without loading it: the fingerprint of its weights, an adapter's base, its number format and answer form.

Ledgers, data and caches are keyed by the fingerprint. Large files are hashed once: the hash is stored in the user's cache, keyed by their paths,
sizes and modification times."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Any, get_args

from graph.errors import UserError
from graph.models.catalogue import read_json, resolve
from graph.shared.home import user_cache
from graph.types import AnswerForm

_CPU_INFO = Path("/proc/cpuinfo")
BFLOAT16_FLAGS = ("amx_bf16", "avx512_bf16")
GPU_DEVICES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""Device files whose existence reveals a GPU without importing torch: NVIDIA's, AMD's, and WSL's."""


def on_cpu() -> bool:
    """Whether this machine has none of GPU_DEVICES."""
    return not any(Path(device).exists() for device in GPU_DEVICES)


@cache
def computes_in_bfloat16() -> bool:
    """Whether the processor has instructions for bfloat16; without them bfloat16 is several times slower than float32."""
    flags = _CPU_INFO.read_text() if _CPU_INFO.exists() else ""
    return any(flag in flags for flag in BFLOAT16_FLAGS)


ADAPTER_CONFIG = "adapter_config.json"
MIN_CACHED_BYTES = 1 << 26
WEIGHTS, CONFIG = "*.safetensors", "config.json"
ORIGIN_ENTRIES = ("transformers_version", "_name_or_path")
"""The entries of a configuration that state where its file comes from, and nothing about the model."""
TOKENIZER_FILES = (
    "tokenizer*",
    "*token*.json",
    "vocab.*",
    "merges.txt",
    "*.model",
    "chat_template*",
    "generation_config.json",
)
"""The files that determine the tokens of a prompt and the end of a reply."""
SHOWN_DIGITS = 12
"""Hexadecimal digits of a displayed fingerprint: 48 bits."""


def model_name(target: str) -> str:
    """A model's folder, or a GGUF file, as `name#fingerprint` of its weights, tokenizer and chat template, without its path.

    A hub name is returned unchanged.
    """
    path = Path(target).expanduser()
    if path.is_file():
        return f"{path.stem}#{_digest([path])[:SHOWN_DIGITS]}"
    return f"{path.resolve().name}#{_fingerprint(path)}" if path.is_dir() else target


def weights_fingerprint(folder: Path) -> str:
    """Hash of a full model's weights (*.safetensors) and configuration without ORIGIN_ENTRIES: equal for conversions by different transformers."""
    config = {key: value for key, value in read_json(folder / CONFIG).items() if key not in ORIGIN_ENTRIES}
    return _digest(sorted(folder.glob(WEIGHTS)), json.dumps(config, sort_keys=True).encode())[:SHOWN_DIGITS]


def _fingerprint(folder: Path) -> str:
    """Hash of the weights, configuration and TOKENIZER_FILES of a model or an adapter; an adapter's hash covers its base (UserError if it names none)."""
    patterns = (WEIGHTS, CONFIG, *TOKENIZER_FILES)
    files = sorted({file for pattern in patterns for file in folder.glob(pattern) if file.is_file()})
    adapter = folder / ADAPTER_CONFIG
    if not adapter.is_file():
        return _digest(files)[:SHOWN_DIGITS]
    settings = read_json(adapter)
    settings["base_model_name_or_path"] = model_name(resolve(_base_in(settings, adapter)))
    return _digest(files, json.dumps(settings, sort_keys=True).encode())[:SHOWN_DIGITS]


def _digest(files: Sequence[Path], extra: bytes = b"") -> str:
    """The hash of the names and contents of files, and of `extra`."""
    states = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    if sum(size for _, size, _ in states) < MIN_CACHED_BYTES:
        return _read_digest(files, extra)
    key = blake2b(repr(states).encode() + extra, digest_size=16).hexdigest()
    cached = user_cache() / "fingerprints" / key
    with suppress(OSError):
        return cached.read_text(encoding="ascii")
    digest = _read_digest(files, extra)
    with suppress(OSError):  # Without a writable cache, later calls hash the files again.
        cached.parent.mkdir(parents=True, exist_ok=True)
        unfinished = cached.with_suffix(f".{os.getpid()}")
        unfinished.write_text(digest, encoding="ascii")
        unfinished.replace(cached)
    return digest


def _read_digest(files: Sequence[Path], extra: bytes) -> str:
    digest = blake2b(digest_size=16)
    for file in files:
        digest.update(file.name.encode())
        with file.open("rb") as data:
            file_digest(data, lambda: digest)
    digest.update(extra)
    return digest.hexdigest()


ADAPTER_WEIGHTS = "adapter_model.safetensors"
RUN_RECORD = "run.json"
"""The record of a training run; its `base_weights` is the fingerprint of the base model."""


def is_adapter(source: str) -> bool:
    """Whether `source` is the folder or the name of an adapter."""
    return (Path(resolve(source)) / ADAPTER_CONFIG).exists()


def tokenizer_source(source: str) -> str:
    """The folder or hub name of a model's tokenizer: that of the model itself, or of its base for an adapter without a tokenizer."""
    folder = resolve(source)
    has_tokenizer = not is_adapter(folder) or (Path(folder) / "tokenizer_config.json").is_file()
    return folder if has_tokenizer else resolve(adapter_base(folder))


def adapter_base(source: str) -> str:
    """The base model's name or path in an adapter's configuration.

    UserError if there is none, if the adapter has no weights, or if the base is itself an adapter.
    """
    folder = resolve(source)
    config = Path(folder) / ADAPTER_CONFIG
    base = _base_in(read_json(config), config)
    if not (Path(folder) / ADAPTER_WEIGHTS).is_file():
        raise UserError(f"{folder}: no {ADAPTER_WEIGHTS}", "an adapter in safetensors", "save the adapter again")
    if is_adapter(base):
        found = f"{config}: base model {base!r} is itself an adapter"
        raise UserError(found, "a full model", "merge that adapter first (modegraph train export --merge)")
    return base


def _base_in(settings: dict[str, Any], config: Path) -> str:
    base = settings.get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise UserError(f"{config}: names no base model", "base_model_name_or_path in it", "save the adapter again")
    return base


def base_of(source: str) -> str:
    """The base model of an adapter; any other model is returned unchanged."""
    return adapter_base(source) if is_adapter(source) else source


def base_weights(source: str) -> str:
    """The fingerprint of a model's weights, or of an adapter's base; a hub name is returned unchanged."""
    base = Path(resolve(base_of(source)))
    return weights_fingerprint(base) if base.is_dir() else str(base)


def check_base(adapter: str, base: str) -> None:
    """UserError if the weights of `base` differ from those that an adapter was trained on, according to the record of its run."""
    trained_on = read_json(Path(resolve(adapter)) / RUN_RECORD).get("base_weights")
    if trained_on and Path(resolve(base)).is_dir() and trained_on != base_weights(base):
        raise wrong_base(adapter, base, f"trained on weights {trained_on}, found {base_weights(base)}")


def trained_precision(source: str) -> str | None:
    """The number format that a model, or an adapter's base, had in training, according to its run.json; None unless it is float32 or bfloat16."""
    settings = read_json(Path(resolve(source)) / RUN_RECORD).get("settings")
    precision = settings.get("precision") if isinstance(settings, dict) else None
    return precision if precision in ("float32", "bfloat16") else None


def answer_form(source: str | Path) -> AnswerForm:
    """The form of the answers that a model was trained on, according to its run.json; "reasoned" without one."""
    recorded = read_json(Path(resolve(str(source))) / RUN_RECORD).get("answer_form")
    return next((form for form in get_args(AnswerForm) if form == recorded), "reasoned")


def wrong_base(adapter: str, base: str, reason: str) -> UserError:
    """The error for an adapter on a base that it was not trained on."""
    found = f"adapter {adapter!r} does not belong to base model {base!r} ({reason})"
    remedy = f"restore that model, or fix base_model_name_or_path in {Path(adapter) / ADAPTER_CONFIG}"
    return UserError(found, "the model that it was trained on", remedy)
