"""Vectors kept from one index of a corpus to the next: an ablation of the graph has a process encode each text once.

Legend: N texts, D dims.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from eval.matrix.fill.cores import share_cores
from graph.shared.types import Encoder, Floats, OpenEncoder


class CachingEncoder:
    """An encoder that keeps every vector it has made."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._kept: dict[str, Floats] = {}

    @property
    def fingerprint(self) -> str:
        """That of the encoder behind it."""
        return self._encoder.fingerprint

    def encode(self, texts: Sequence[str]) -> Floats:
        """N texts -> float32[N, D]; only texts that were never asked for go to the encoder."""
        new = [text for text in dict.fromkeys(texts) if text not in self._kept]
        share_cores()
        vectors_ND = self._encoder.encode(new)
        self._kept.update(zip(new, vectors_ND, strict=True))
        return np.stack([self._kept[text] for text in texts]) if texts else vectors_ND

    def count_tokens(self, text: str) -> int:
        """As the encoder behind it counts."""
        return self._encoder.count_tokens(text)


def caching_encoder(open_encoder: OpenEncoder, spec: str, documents: Path) -> CachingEncoder:
    """The encoder for the indexes of a corpus; what was kept for another corpus, or made by another encoder of the name, is let go."""
    return _keeping(open_encoder, spec, documents, open_encoder(spec).fingerprint)


@lru_cache(maxsize=1)
def _keeping(open_encoder: OpenEncoder, spec: str, documents: Path, fingerprint: str) -> CachingEncoder:
    del documents, fingerprint
    return CachingEncoder(open_encoder(spec))
