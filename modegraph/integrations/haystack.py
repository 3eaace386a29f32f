"""A Haystack component (package `haystack-ai`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from haystack import Document, component

from modegraph.integrations.adapter import metadata_of, open_if_path


@component
class ModegraphRetriever:
    """Passages of the index in the folder `index` as Haystack documents; `settings` are those of `retrieve`."""

    def __init__(self, index: str, settings: Mapping[str, Any] | None = None) -> None:
        self.index, self.settings = str(index), dict(settings or {})
        self._opened = open_if_path(self.index)

    @component.output_types(documents=list[Document])
    def run(self, query: str) -> dict[str, Any]:
        """The documents for a query, best first."""
        scored = self._opened.retrieve(query, **self.settings).passages
        documents = [
            Document(id=passage.item.id, content=passage.item.text, meta=metadata_of(passage), score=passage.score)
            for passage in scored
        ]
        return {"documents": documents}
