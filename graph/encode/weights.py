"""What a model's weights are, whatever its folder is called: the fingerprint that ledgers, data and caches are keyed by.

That of large files is noted in the user's cache with their sizes and times, and read again only when one of these has changed.
"""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from graph.pretrained.cache import resolve
from graph.shared.home import user_cache

ADAPTER_CONFIG = "adapter_config.json"
CHUNK_BYTES = 1 << 22
NOTED_BYTES = 1 << 26
WEIGHTS = ("*.safetensors", "config.json")
SPEECH = ("tokenizer*", "*token*.json", "vocab.*", "merges.txt", "*.model", "chat_template*", "generation_config.json")
"""The files that decide what text the weights are given, and where theirs ends."""
TOLD = 12
"""Hexadecimal digits of a fingerprint that are shown: 48 bits."""


def model_name(target: str) -> str:
    """A model's folder as `name#fingerprint` of its weights, tokenizer and chat template, without the path to it; so a GGUF file.

    A hub name as it stands.
    """
    path = Path(target).expanduser()
    if path.is_file():
        return f"{path.stem}#{_digest([path])[:TOLD]}"
    return f"{path.resolve().name}#{_fingerprint(path, WEIGHTS + SPEECH)}" if path.is_dir() else target


def weights_fingerprint(folder: Path) -> str:
    """Hash of all weights (*.safetensors) and the config in a model's or adapter's folder; an adapter's covers its base."""
    return _fingerprint(folder, WEIGHTS)


def _fingerprint(folder: Path, patterns: tuple[str, ...]) -> str:
    files = sorted({file for pattern in patterns for file in folder.glob(pattern) if file.is_file()})
    adapter = folder / ADAPTER_CONFIG
    if not adapter.is_file():
        return _digest(files)[:TOLD]
    settings = json.loads(adapter.read_text(encoding="utf-8"))
    settings["base_model_name_or_path"] = model_name(resolve(str(settings.get("base_model_name_or_path", ""))))
    return _digest(files, json.dumps(settings, sort_keys=True).encode())[:TOLD]


def _digest(files: Sequence[Path], further: bytes = b"") -> str:
    """The hash of names and contents of files, and of `further`."""
    states = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    if sum(size for _, size, _ in states) < NOTED_BYTES:
        return _read_digest(files, further)
    key = blake2b(repr(states).encode() + further, digest_size=16).hexdigest()
    noted = user_cache() / "fingerprints" / key
    with suppress(OSError):
        return noted.read_text(encoding="ascii")
    found = _read_digest(files, further)
    with suppress(OSError):  # A cache that cannot be written costs time and nothing else.
        noted.parent.mkdir(parents=True, exist_ok=True)
        begun = noted.with_suffix(f".{os.getpid()}")
        begun.write_text(found, encoding="ascii")
        begun.replace(noted)
    return found


def _read_digest(files: Sequence[Path], further: bytes) -> str:
    digest = blake2b(digest_size=16)
    for file in files:
        digest.update(file.name.encode())
        with file.open("rb") as data:
            while chunk := data.read(CHUNK_BYTES):
                digest.update(chunk)
    digest.update(further)
    return digest.hexdigest()
