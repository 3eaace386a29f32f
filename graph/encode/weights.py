"""What a model's weights are, whatever its folder is called: the fingerprint that ledgers, data and caches are keyed by."""

import json
from hashlib import blake2b
from pathlib import Path

from graph.pretrained.cache import resolve

ADAPTER_CONFIG = "adapter_config.json"
CHUNK_BYTES = 1 << 22
WEIGHTS = ("*.safetensors", "config.json")
SPEECH = ("tokenizer*", "*token*.json", "vocab.*", "merges.txt", "*.model", "chat_template*", "generation_config.json")
"""The files that decide what text the weights are given, and where theirs ends."""
TOLD = 12
"""Hexadecimal digits of a fingerprint that are shown: 48 bits."""


def model_name(target: str) -> str:
    """A model's folder as `name#fingerprint` of its weights, tokenizer and chat template, without the path to it; a hub name as it stands."""
    folder = Path(target).expanduser()
    return f"{folder.resolve().name}#{_fingerprint(folder, WEIGHTS + SPEECH)}" if folder.is_dir() else target


def weights_fingerprint(folder: Path) -> str:
    """Hash of all weights (*.safetensors) and the config in a model's or adapter's folder; an adapter's covers its base."""
    return _fingerprint(folder, WEIGHTS)


def _fingerprint(folder: Path, patterns: tuple[str, ...]) -> str:
    digest = blake2b(digest_size=16)
    for file in sorted({file for pattern in patterns for file in folder.glob(pattern) if file.is_file()}):
        digest.update(file.name.encode())
        with file.open("rb") as data:
            while chunk := data.read(CHUNK_BYTES):
                digest.update(chunk)
    adapter = folder / ADAPTER_CONFIG
    if adapter.is_file():
        settings = json.loads(adapter.read_text(encoding="utf-8"))
        settings["base_model_name_or_path"] = model_name(resolve(str(settings.get("base_model_name_or_path", ""))))
        digest.update(json.dumps(settings, sort_keys=True).encode())
    return digest.hexdigest()[:TOLD]
