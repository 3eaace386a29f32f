"""A sentence encoder in ONNX Runtime, for questions: no torch is loaded, and one short text takes less than half of its time."""

import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from graph.shared.home import user_cache
from graph.types import Floats

ABOUT, MODEL, TOKENIZER = "about.json", "model.onnx", "tokenizer.json"
FORMAT = "modegraph encoder, onnx, 1"
NEEDED = ("onnx", "onnxruntime", "onnxscript")
INPUT, OUTPUT = "input_ids", "vector"


class OnnxEncoder:
    """An exported encoder: texts one by one, on one thread, since a question is too short to share."""

    def __init__(self, folder: Path) -> None:
        from onnxruntime import InferenceSession, SessionOptions
        from tokenizers import Tokenizer

        options = SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = InferenceSession(folder / MODEL, options, providers=["CPUExecutionProvider"])
        self._tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))

    def encode(self, texts: Sequence[str]) -> Floats:
        """N ≥ 1 texts -> float32[N, D], as the encoder's pooling leaves them."""
        return np.concatenate([self._session.run([OUTPUT], {INPUT: self.ids(text)})[0] for text in texts])

    def ids(self, text: str) -> Any:
        """Token ids with the special ones, cut to the encoder's longest text: int64[1, W]."""
        return np.array([self._tokenizer.encode(text).ids], np.int64)


def open_exported(fingerprint: str) -> OnnxEncoder | None:
    """The export of the encoder with that fingerprint; None where there is none that can be used, or no ONNX Runtime."""
    about = read_about(fingerprint)
    if about is None or not about["usable"] or find_spec("onnxruntime") is None:
        return None
    try:
        return OnnxEncoder(folder_of(fingerprint))
    # What ONNX Runtime raises has no other base; a broken cache is no reason to fail.
    except Exception:  # noqa: BLE001
        return None


def can_export() -> bool:
    """Whether the libraries of the extra `fast` are here."""
    return all(find_spec(name) is not None for name in NEEDED)


def read_about(fingerprint: str) -> dict[str, Any] | None:
    """What is noted beside an export: {"format", "usable", "model_bytes"}; None without a whole one of this format."""
    folder = folder_of(fingerprint)
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        whole = about["format"] == FORMAT and (
            not about["usable"] or (folder / MODEL).stat().st_size == about["model_bytes"]
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return dict(about) if whole else None


def folder_of(fingerprint: str) -> Path:
    """Where the export of an encoder is kept."""
    return user_cache() / "encoders" / fingerprint
