"""How OpenAI's clients ask for passages: a search of a vector store, or the file_search tool of a response."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from graph.shared.config import parse_settings
from serve.http.routes.chat_request import ChatRetrieval
from serve.http.search.filters import Filter, conditions
from serve.http.shared.encoding import Text
from serve.http.shared.errors import not_supported

MAX_RESULTS = 50
"""OpenAI's own limit."""


class RankingOptions(BaseModel):
    """How results are ranked; the server's own mode does that, so that only its default can be asked for."""

    model_config = ConfigDict(extra="forbid")

    ranker: Literal["none", "auto", "default-2024-11-15"] | None = None
    score_threshold: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    hybrid_search: dict[str, Any] | None = None


class SearchOptions(BaseModel):
    """What a search and the file_search tool have in common."""

    model_config = ConfigDict(extra="forbid")

    filters: Filter | None = None
    max_num_results: Annotated[int, Field(ge=1, le=MAX_RESULTS)] | None = None
    ranking_options: RankingOptions | None = None

    def retrieval(self, place: str = "") -> ChatRetrieval:
        """The options of a retrieval; ApiError or UserError 400 for what it cannot do."""
        ranking = self.ranking_options or RankingOptions()
        if ranking.score_threshold:
            why = "scores of the modes are on scales of their own (docs/retrieval.md)"
            raise not_supported(f"{place}ranking_options.score_threshold", why)
        if ranking.hybrid_search is not None:
            raise not_supported(f"{place}ranking_options.hybrid_search", "mode hybrid has no weights to set")
        where = conditions(self.filters, f"{place}filters")
        return parse_settings(ChatRetrieval, {"where": where, "k": self.max_num_results}, f"{place}filters")


class StoreSearchRequest(SearchOptions):
    """A search of a vector store."""

    max_num_results: int = Field(10, ge=1, le=MAX_RESULTS)
    query: Text | Annotated[list[Text], Field(min_length=1, max_length=16)] = Field(examples=["Who built the Lantern?"])
    rewrite_query: bool | None = None

    def question(self) -> str:
        """The one query; ApiError 400 for several, and for a rewriting, which needs a conversation."""
        if self.rewrite_query:
            raise not_supported("rewrite_query", "a single query has no conversation to be rewritten from")
        if isinstance(self.query, str):
            return self.query
        if len(self.query) > 1:
            raise not_supported("query", "several queries at once; ask once for each")
        return self.query[0]
