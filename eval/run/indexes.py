"""The index that a group of cells shares: made once, and again when the indexing code has changed; each text of a corpus is encoded once per process.

Legend: N texts, D dims."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from eval.run.config import Cell
from eval.run.fingerprints import index_code
from eval.run.workers import share_cores
from graph.build.build import build_index
from graph.documents.read import read_documents
from graph.index.index import Index, open_index
from graph.shared.console import say
from graph.shared.jsonl import write_text
from graph.store.ledger_file import LEDGER
from graph.store.manifest import MANIFEST
from graph.types import Encoder, Floats, OpenEncoder, OpenModel, Prompts


class CachingEncoder:
    """An encoder that caches every vector."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._vectors: dict[str, Floats] = {}
        self._query_vectors: dict[str, Floats] = {}

    @property
    def fingerprint(self) -> str:
        """The wrapped encoder's fingerprint."""
        return self._encoder.fingerprint

    @property
    def prompts(self) -> Prompts:
        """The wrapped encoder's prompts."""
        return self._encoder.prompts

    def encode(self, texts: Sequence[str]) -> Floats:
        """N texts -> float32[N, D]; only texts that are not cached go to the encoder."""
        return _encode_cached(self._encoder.encode, self._vectors, texts)

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """The same for questions, which have another prompt."""
        return _encode_cached(self._encoder.encode_queries, self._query_vectors, texts)

    def count_tokens(self, text: str) -> int:
        """The wrapped encoder's count."""
        return self._encoder.count_tokens(text)


def _encode_cached(
    encode: Callable[[Sequence[str]], Floats], cached: dict[str, Floats], texts: Sequence[str]
) -> Floats:
    new = [text for text in dict.fromkeys(texts) if text not in cached]
    share_cores()
    vectors_ND = encode(new)
    cached.update(zip(new, vectors_ND, strict=True))
    return np.stack([cached[text] for text in texts]) if texts else vectors_ND


def caching_encoder(open_encoder: OpenEncoder, spec: str, documents: Path) -> CachingEncoder:
    """The encoder for the indexes of a corpus; vectors of another corpus, or of another encoder of that name, are dropped."""
    return _last_encoder(open_encoder, spec, documents, open_encoder(spec).fingerprint)


@lru_cache(maxsize=1)
def _last_encoder(open_encoder: OpenEncoder, spec: str, documents: Path, fingerprint: str) -> CachingEncoder:
    del documents, fingerprint
    return CachingEncoder(open_encoder(spec))


def group_index(cell: Cell, folder: Path, open_encoder: OpenEncoder, open_model: OpenModel) -> Index:
    """The index of a cell in `folder`, made if it is missing, unfinished, or made by other code.

    A finished index that the task names is used unchanged.
    """
    if cell.task.index is not None:
        return open_index(folder, open_encoder)
    made_by, code = folder.with_name(f"{folder.name}.code"), index_code()
    if made_by.is_file() and made_by.read_text(encoding="utf-8") != code:
        say(f"{cell.task.name}: the code has changed since it was indexed")
        remove_index(folder)
    if not (folder / MANIFEST).is_file():
        started = time.perf_counter()
        folder.parent.mkdir(parents=True, exist_ok=True)
        write_text(made_by, code)
        corpus = cell.task.documents
        open_caching = partial(caching_encoder, open_encoder, documents=corpus)
        build_index(folder, read_documents(corpus, say), cell.system.index, open_caching, open_model)
        say(f"{cell.task.name}: indexed ({time.perf_counter() - started:.1f} s)")
    return open_index(folder, open_encoder)


def remove_index(folder: Path) -> None:
    """Remove an index except its ledger, so that a language model's calls are not repeated for the same prompts."""
    for file in folder.iterdir() if folder.is_dir() else ():
        if file.is_dir():
            shutil.rmtree(file)
        elif not file.name.startswith(LEDGER):
            file.unlink()
