"""A Haystack component (package `haystack-ai`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from haystack import Document, component, default_from_dict, default_to_dict

from modegraph.integrations.adapter import metadata_of, open_if_path


@component
class ModegraphRetriever:
    """Passages of the index in the folder `index` as Haystack documents; `settings` are those of `retrieve`."""

    def __init__(self, index: str, settings: Mapping[str, Any] | None = None) -> None:
        self._folder, self._settings = str(index), dict(settings or {})
        self._index = open_if_path(self._folder)

    @component.output_types(documents=list[Document])
    def run(self, query: str) -> dict[str, Any]:
        """The documents for a query, best first."""
        scored = self._index.retrieve(query, **self._settings).passages
        documents = [
            Document(id=passage.item.id, content=passage.item.text, meta=metadata_of(passage), score=passage.score)
            for passage in scored
        ]
        return {"documents": documents}

    def to_dict(self) -> dict[str, Any]:
        """Serialise for a saved pipeline."""
        return dict(default_to_dict(self, index=self._folder, settings=self._settings))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ModegraphRetriever:
        """Deserialise from a saved pipeline."""
        retriever: ModegraphRetriever = default_from_dict(cls, data)
        return retriever
