"""Shared by the retrievers for other frameworks: opening an index, and the metadata of a passage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from graph.types import Passage, Scored
from modegraph.indexes import Index


def open_if_path(index: Index | str | Path) -> Index:
    """The given index, or the index in the given folder; UserError when the folder has none."""
    return index if isinstance(index, Index) else Index(index)


def metadata_of(scored: Scored[Passage]) -> dict[str, Any]:
    """A passage's id, title, location and score, for frameworks that attach metadata as a mapping."""
    passage = scored.item
    return {
        "id": passage.id,
        "source": passage.source,
        "title": passage.title,
        "start": passage.start,
        "end": passage.end,
        "score": scored.score,
        **({"page": passage.page} if passage.page is not None else {}),
    }
