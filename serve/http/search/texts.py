"""Texts of a client's own for the index's encoder: how many, how long, and what the models are called that read them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from serve.http.shared.errors import ApiError

MAX_TEXTS = 256


def called(spec: str) -> str:
    """The name of an encoder or a reranker: its own, or of a folder the last part.

    >>> called("minilm"), called("owner/model")
    ('minilm', 'owner/model')
    """
    return Path(spec).expanduser().resolve().name if Path(spec).expanduser().is_dir() else spec


def check_name(asked: str, served: Sequence[str]) -> None:
    """ApiError 404 for a model that does not read texts here."""
    if asked not in served:
        told = f"model {asked[:80]!r} is not served here; there is: {', '.join(served)}"
        raise ApiError(404, "model_not_found", told, "model")


def check_lengths(texts: Sequence[str], limit: int, place: str) -> None:
    """ApiError 400 for a text that is empty or has more than `limit` characters."""
    for number, text in enumerate(texts):
        if not text.strip():
            raise ApiError(400, "empty_text", f"{place}.{number}: the text is empty", place)
        if len(text) > limit:
            told = f"{place}.{number}: the text has {len(text):,} characters, of {limit:,} at most"
            raise ApiError(400, "long_text", told, place)
