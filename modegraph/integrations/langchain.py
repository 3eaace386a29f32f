"""A LangChain retriever (package `langchain-core`)."""

from __future__ import annotations

from typing import Any

from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import PrivateAttr

from modegraph.indexes import Index
from modegraph.integrations.adapter import metadata_of, open_if_path


class ModegraphRetriever(BaseRetriever):
    """Passages of an index as LangChain documents: `index` is an `Index` or its folder, `settings` are those of `retrieve`."""

    index: Any
    settings: dict[str, Any] = {}  # noqa: RUF012  (pydantic copies it)
    _opened: Index = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        """Open the index; UserError when there is none."""
        super().model_post_init(context)
        self._opened = open_if_path(self.index)

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        scored = self._opened.retrieve(query, **self.settings).passages
        return [
            Document(id=passage.item.id, page_content=passage.item.text, metadata=metadata_of(passage))
            for passage in scored
        ]
