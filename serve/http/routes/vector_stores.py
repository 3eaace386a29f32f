"""/v1/vector_stores: each collection as an OpenAI vector store, with its documents as files; searched without a language model.

`SearchOptions` are also the options of the tool file_search of /v1/responses. OpenAI's attribute filters become conditions on documents
(graph/index/filters.py)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from glob import escape
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field, StringConstraints

from graph.answer.context import of_passage
from graph.config import parse_settings
from graph.shared.disk import folder_bytes
from graph.shared.pages import PAGE_STARTS
from graph.types import Evidence
from serve.citations import passage_url
from serve.http.encoding import StrictModel, Text
from serve.http.errors import ApiError, not_supported
from serve.http.keys import access_of
from serve.http.routes.documents import MAX_SOURCE_CHARS
from serve.server.chat_request import ChatRetrieval
from serve.server.collections import STORE_FIELD, Generation
from serve.server.retriever import MAX_CONDITIONS
from serve.server.services import Caller, Services

_OUTER_SPACES = re.compile(r"^\s+|\s+\Z")
OPERATORS = {"eq": "=", "ne": "!=", "gt": ">", "gte": ">=", "lt": "<", "lte": "<=", "in": "=", "nin": "!="}
Number = Annotated[float, Field(allow_inf_nan=False)]
Value = bool | int | Number | Annotated[Text, StringConstraints(min_length=1, max_length=MAX_SOURCE_CHARS)]


class Comparison(StrictModel):
    """One condition: a key of the documents' metadata (or source, title) compared with a value."""

    type: Literal["eq", "ne", "gt", "gte", "lt", "lte", "in", "nin"]
    key: Annotated[str, StringConstraints(pattern=r"^[^\s<>=][^<>=]{0,99}$")]
    value: Value | Annotated[list[Value], Field(min_length=1, max_length=16)]


class Compound(StrictModel):
    """Several conditions that must all hold; `or` of several is refused."""

    type: Literal["and", "or"]
    filters: list[Comparison | Compound] = Field(min_length=1, max_length=16)


Filter = Comparison | Compound


def conditions(filter_: Filter | None, field: str) -> tuple[str, ...]:
    """The conditions of a filter; ApiError 400 for alternatives (`or` of several filters, `in` with several values), for a list where the type
    takes one value, and for one value where it takes a list.

    >>> conditions(Comparison(type="gte", key="year", value=1990), "filters")
    ('year >= 1990',)
    """
    if filter_ is None:
        return ()
    if isinstance(filter_, Compound):
        if filter_.type == "or" and len(filter_.filters) > 1:
            raise _needs_alternatives(field, "or")
        return tuple(condition for part in filter_.filters for condition in conditions(part, field))
    values = filter_.value if isinstance(filter_.value, list) else [filter_.value]
    is_list = isinstance(filter_.value, list)
    if is_list != (filter_.type in ("in", "nin")):
        message = f"{field}: on {filter_.key}, {filter_.type} takes {'one value, not a list' if is_list else 'a list of values'}"
        raise ApiError(400, "bad_value", message, field)
    if filter_.type == "in" and len(values) > 1:
        raise _needs_alternatives(field, "in")
    return tuple(f"{filter_.key} {OPERATORS[filter_.type]} {_condition_value(value, filter_.type)}" for value in values)


def _condition_value(value: bool | float | str, comparison: str) -> str:
    """A value in a condition. In a test of equality, a string's wildcards (`*`, `?`, `[`) are escaped, as are its outer spaces, which a condition would lose.

    >>> _condition_value(" a*b", "eq")
    '[ ]a[*]b'
    """
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str) or OPERATORS[comparison] not in ("=", "!="):
        return str(value)
    return _OUTER_SPACES.sub(lambda spaces: "".join(f"[{space}]" for space in spaces[0]), escape(value))


def _needs_alternatives(field: str, name: str) -> ApiError:
    message = f"{field}: {name} is not supported, since all conditions on documents must hold; send one request per alternative"
    return ApiError(400, "not_supported", message, field)


MAX_RESULTS = 50
"""OpenAI's limit."""


class RankingOptions(StrictModel):
    """How to rank results. The server's mode decides: `ranker` is ignored, and other options are refused unless they have their defaults."""

    ranker: Literal["none", "auto", "default-2024-11-15"] | None = None
    score_threshold: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    hybrid_search: dict[str, Any] | None = None


class SearchOptions(StrictModel):
    """Options of both a search and the tool file_search."""

    filters: Filter | None = None
    max_num_results: Annotated[int, Field(ge=1, le=MAX_RESULTS)] | None = None
    ranking_options: RankingOptions | None = None

    def retrieval(self, prefix: str = "") -> ChatRetrieval:
        """The options of a retrieval; ApiError 400 or UserError for unsupported ones."""
        ranking = self.ranking_options or RankingOptions()
        if ranking.score_threshold:
            reason = "each mode has its own scale of scores (docs/retrieval.md)"
            raise not_supported(f"{prefix}ranking_options.score_threshold", reason)
        if ranking.hybrid_search is not None:
            raise not_supported(f"{prefix}ranking_options.hybrid_search", "mode hybrid has no weights to set")
        field = f"{prefix}filters"
        where = conditions(self.filters, field)
        if len(where) > MAX_CONDITIONS:
            message = f"{field}: {len(where):,} conditions in all; the limit is {MAX_CONDITIONS}"
            raise ApiError(400, "bad_value", message, field)
        return parse_settings(ChatRetrieval, {"where": where, "k": self.max_num_results}, field)


class StoreSearchRequest(SearchOptions):
    """A search of a vector store."""

    max_num_results: int = Field(10, ge=1, le=MAX_RESULTS)
    query: Text | Annotated[list[Text], Field(min_length=1, max_length=16)] = Field(examples=["Who built the Lantern?"])
    rewrite_query: bool | None = None

    def question(self) -> str:
        """The query; ApiError 400 for several queries, and for `rewrite_query`, which needs a conversation."""
        if self.rewrite_query:
            raise not_supported("rewrite_query", "a query without a conversation cannot be rewritten")
        if isinstance(self.query, str):
            return self.query
        if len(self.query) > 1:
            raise not_supported("query", "the list has several queries; send one request per query")
        return self.query[0]


Scalar = str | bool | int | float


class FileCounts(BaseModel):
    """The number of documents in the index; all count as completed."""

    in_progress: int = 0
    completed: int
    failed: int = 0
    cancelled: int = 0
    total: int


class VectorStore(BaseModel):
    """A collection as a vector store; its id is the name of its folder."""

    id: str
    object: Literal["vector_store"] = "vector_store"
    created_at: int = 0
    name: str
    status: Literal["completed"] = "completed"
    usage_bytes: int
    file_counts: FileCounts
    last_active_at: int | None = None
    metadata: dict[str, str] = {}


class VectorStores(BaseModel):
    object: Literal["list"] = "list"
    data: list[VectorStore]
    first_id: str | None
    last_id: str | None
    has_more: Literal[False] = False


class TextContent(BaseModel):
    type: Literal["text"] = "text"
    text: str


class FoundFile(BaseModel):
    """A passage. `file_id` is its document's source; besides OpenAI's fields, `start`, `end` and `page` are its position in the document, and `url` opens it."""

    file_id: str
    filename: str
    score: float
    attributes: dict[str, Scalar]
    content: list[TextContent]
    start: int
    end: int
    page: int | None
    url: str


class FoundFiles(BaseModel):
    """The passages for a query, best first, on a single page."""

    object: Literal["vector_store.search_results.page"] = "vector_store.search_results.page"
    search_query: list[str]
    data: list[FoundFile]
    has_more: Literal[False] = False
    next_page: None = None


def vector_store(name: str, generation: Generation) -> VectorStore:
    """The index as an OpenAI vector store; for the part of an index that a caller may see, `usage_bytes` counts only the texts of its passages."""
    index = generation.index
    total = len(index.data.document_sources)
    if generation.where:
        starts = index.data.passage_texts.starts
        size = int(starts[-1] - starts[0])
    else:
        size = folder_bytes(index.folder)
    return VectorStore(id=name, name=name, usage_bytes=size, file_counts=FileCounts(completed=total, total=total))


def found_files(evidence: Evidence, generation: Generation, base: str) -> FoundFiles:
    """The passages of the evidence."""
    files = [
        FoundFile(
            file_id=passage.source,
            filename=passage.source,
            score=found.score,
            attributes=attributes(generation.metadata(passage.source)),
            content=[TextContent(text=passage.text)],
            start=passage.start,
            end=passage.end,
            page=passage.page,
            url=passage_url(base, of_passage(passage)),
        )
        for found in evidence.passages
        for passage in [found.item]
    ]
    return FoundFiles(search_query=[evidence.query], data=files)


def attributes(metadata: Mapping[str, Any]) -> dict[str, Scalar]:
    """Metadata as OpenAI's attributes, which have no lists: a list becomes one string, and the offsets of pages are left out.

    >>> attributes({"year": 1990, "tags": ["sea", "isle"], "page_starts": [0, 812]})
    {'year': 1990, 'tags': 'sea, isle'}
    """
    return {
        key: ", ".join(map(str, value)) if isinstance(value, list) else value
        for key, value in metadata.items()
        if key != PAGE_STARTS
    }


def vector_stores_router(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1/vector_stores", tags=["retrieval"])
    collections, retriever = services.collections, services.retriever

    @router.get("")
    async def vector_stores(access: Caller) -> VectorStores:
        """The collections as vector stores."""
        views = [await collections.view(access, name) for name in collections.names(access)]
        stores = [await retriever.in_thread(partial(vector_store, view.name, view.generation)) for view in views]
        ends = (stores[0].id, stores[-1].id) if stores else (None, None)
        return VectorStores(data=stores, first_id=ends[0], last_id=ends[1])

    @router.get("/{vector_store_id}")
    async def store(vector_store_id: str, access: Caller) -> VectorStore:
        """One collection as a vector store."""
        view = await collections.view(access, vector_store_id, STORE_FIELD)
        return await retriever.in_thread(partial(vector_store, view.name, view.generation))

    @router.post("/{vector_store_id}/search")
    async def search(vector_store_id: str, request: StoreSearchRequest, http: Request) -> FoundFiles:
        """The passages for a query, best first, by the server's mode. Works without the language model."""
        view = await collections.view(access_of(http), vector_store_id, STORE_FIELD)
        question = retriever.check_question(request.question())
        settings = retriever.settings_of(request.retrieval())
        evidence = await retriever.find_in_store(question, settings, None, view.generation)
        return found_files(evidence, view.generation, services.page_url(http, view))

    return router
