"""A LlamaIndex retriever (package `llama-index-core`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from modegraph.indexes import Index
from modegraph.integrations.adapter import metadata_of, open_if_path


class ModegraphRetriever(BaseRetriever):
    """Passages of an index as nodes with scores: `index` is an `Index` or its folder, `settings` are those of `retrieve`."""

    def __init__(self, index: Index | str | Path, settings: Mapping[str, Any] | None = None) -> None:
        self._index, self._settings = open_if_path(index), dict(settings or {})
        super().__init__()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        scored = self._index.retrieve(query_bundle.query_str, **self._settings).passages
        return [
            NodeWithScore(
                node=TextNode(id_=passage.item.id, text=passage.item.text, metadata=metadata_of(passage)),
                score=passage.score,
            )
            for passage in scored
        ]
