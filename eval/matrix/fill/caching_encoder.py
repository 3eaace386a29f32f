"""Vectors kept from one index of a corpus to the next: an ablation of the graph has a process encode each text once.

Legend: N texts, D dims.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from eval.matrix.fill.cores import share_cores
from graph.shared.types import Encoder, Floats, OpenEncoder, Prompts


class CachingEncoder:
    """An encoder that keeps every vector it has made."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._kept: dict[str, Floats] = {}
        self._kept_queries: dict[str, Floats] = {}

    @property
    def fingerprint(self) -> str:
        """That of the encoder behind it."""
        return self._encoder.fingerprint

    @property
    def prompts(self) -> Prompts:
        """Those of the encoder behind it."""
        return self._encoder.prompts

    def encode(self, texts: Sequence[str]) -> Floats:
        """N texts -> float32[N, D]; only texts that were never asked for go to the encoder."""
        return _with_kept(self._encoder.encode, self._kept, texts)

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """The same for questions, whose prompt is another."""
        return _with_kept(self._encoder.encode_queries, self._kept_queries, texts)

    def count_tokens(self, text: str) -> int:
        """As the encoder behind it counts."""
        return self._encoder.count_tokens(text)


def _with_kept(encode: Callable[[Sequence[str]], Floats], kept: dict[str, Floats], texts: Sequence[str]) -> Floats:
    new = [text for text in dict.fromkeys(texts) if text not in kept]
    share_cores()
    vectors_ND = encode(new)
    kept.update(zip(new, vectors_ND, strict=True))
    return np.stack([kept[text] for text in texts]) if texts else vectors_ND


def caching_encoder(open_encoder: OpenEncoder, spec: str, documents: Path) -> CachingEncoder:
    """The encoder for the indexes of a corpus; what was kept for another corpus, or made by another encoder of the name, is let go."""
    return _keeping(open_encoder, spec, documents, open_encoder(spec).fingerprint)


@lru_cache(maxsize=1)
def _keeping(open_encoder: OpenEncoder, spec: str, documents: Path, fingerprint: str) -> CachingEncoder:
    del documents, fingerprint
    return CachingEncoder(open_encoder(spec))
