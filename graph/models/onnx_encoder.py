"""A sentence encoder in ONNX Runtime, for questions: torch is not loaded, and a short text takes less than half of torch's time."""

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
REQUIRED_PACKAGES = ("onnx", "onnxruntime", "onnxscript")
INPUT, OUTPUT = "input_ids", "vector"


class OnnxEncoder:
    """An exported encoder. It encodes texts one by one, on one thread, because a question is too short to benefit from several threads."""

    def __init__(self, folder: Path) -> None:
        from onnxruntime import InferenceSession, SessionOptions
        from tokenizers import Tokenizer

        options = SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = InferenceSession(folder / MODEL, options, providers=["CPUExecutionProvider"])
        self._tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))

    def encode(self, texts: Sequence[str]) -> Floats:
        """N ≥ 1 texts -> float32[N, D], as pooled by the encoder."""
        ids = [np.array([encoding.ids], np.int64) for encoding in map(self._tokenizer.encode, texts)]
        return np.concatenate([self._session.run([OUTPUT], {INPUT: ids_1W})[0] for ids_1W in ids])


def open_exported(fingerprint: str) -> OnnxEncoder | None:
    """The export of the encoder with that fingerprint; None if there is no usable export, it cannot be opened, or ONNX Runtime is not installed."""
    about = read_about(fingerprint)
    if about is None or not about["usable"] or find_spec("onnxruntime") is None:
        return None
    try:
        return OnnxEncoder(folder_of(fingerprint))
    # ONNX Runtime's errors have no common base class; a broken cache is no reason to fail.
    except Exception:  # noqa: BLE001
        return None


def can_export() -> bool:
    """Whether the libraries of the extra `fast` are installed."""
    return all(find_spec(name) is not None for name in REQUIRED_PACKAGES)


def read_about(fingerprint: str) -> dict[str, Any] | None:
    """The record of an export, usable or not: {"format", "usable", "model_bytes"}; None if there is none of this format, or the model is incomplete."""
    folder = folder_of(fingerprint)
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        whole_model = not about["usable"] or (folder / MODEL).stat().st_size == about["model_bytes"]
        complete = whole_model and about["format"] == FORMAT
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return dict(about) if complete else None


def folder_of(fingerprint: str) -> Path:
    return user_cache() / "encoders" / fingerprint
