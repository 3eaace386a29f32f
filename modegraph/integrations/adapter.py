"""What every adapter does with an index and the settings of `retrieve`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graph.types import Passage, Scored
from modegraph.indexes import Index


def open_if_path(index: Index | str | Path) -> Index:
    """An index as it is, or opened from its folder; UserError when there is none."""
    return index if isinstance(index, Index) else Index(index)


def metadata_of(found: Scored[Passage]) -> dict[str, Any]:
    """Where a passage stands and how it was scored, for frameworks that carry a mapping along."""
    item = found.item
    return {
        "id": item.id,
        "source": item.source,
        "title": item.title,
        "start": item.start,
        "end": item.end,
        "score": found.score,
        **({"page": item.page} if item.page is not None else {}),
    }


def passages(index: Index, question: str, settings: Mapping[str, Any]) -> tuple[Scored[Passage], ...]:
    """The passages for a question, best first."""
    return index.retrieve(question, **settings).passages
