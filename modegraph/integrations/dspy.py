"""A DSPy retrieval module (package `dspy`, in a separate environment, because its `litellm` requires an older `openai`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dspy

from modegraph.indexes import Index
from modegraph.integrations.adapter import open_if_path


class ModegraphRM(dspy.Module):
    """`retriever(question).passages` are texts, best first, as `dspy.Retrieve` returns them; `settings` are those of `retrieve`."""

    def __init__(self, index: Index | str | Path, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self._index, self._settings = open_if_path(index), dict(settings or {})

    def forward(self, query: str, k: int | None = None) -> dspy.Prediction:
        """The passages for a query, with their scores and sources."""
        settings = self._settings if k is None else {**self._settings, "top_k": k}
        scored = self._index.retrieve(query, **settings).passages
        return dspy.Prediction(
            passages=[passage.item.text for passage in scored],
            scores=[passage.score for passage in scored],
            sources=[passage.item.source for passage in scored],
        )
