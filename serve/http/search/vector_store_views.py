"""What the routes of vector stores answer with, in OpenAI's form."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from graph.prompt.context import of_passage
from graph.shared.types import Evidence, Passage
from graph.store.columns.strings import Strings
from serve.live_index import Generation
from serve.views.citations import passage_url

Scalar = str | bool | int | float


class FileCounts(BaseModel):
    """The documents of the index, all of them in use."""

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
    """A passage. `file_id` is its document's source; beside OpenAI's fields, its place there and the address that opens it."""

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
    """The passages for a query, best first, all on one page."""

    object: Literal["vector_store.search_results.page"] = "vector_store.search_results.page"
    search_query: list[str]
    data: list[FoundFile]
    has_more: Literal[False] = False
    next_page: None = None


def vector_store(name: str, generation: Generation) -> VectorStore:
    """The index as OpenAI's clients list it."""
    index = generation.index
    total = len(index.data.document_sources)
    size = texts_bytes(index.data.passage_texts) if generation.where else folder_bytes(index.folder)
    return VectorStore(id=name, name=name, usage_bytes=size, file_counts=FileCounts(completed=total, total=total))


def folder_bytes(folder: Path) -> int:
    """The size of all files in a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def texts_bytes(texts: Strings) -> int:
    """The size of all texts of a column."""
    return int(texts.starts[-1] - texts.starts[0])


def found_files(evidence: Evidence, generation: Generation, base: str) -> FoundFiles:
    """The passages of an evidence."""
    found = [_found_file(each.item, each.score, generation, base) for each in evidence.passages]
    return FoundFiles(search_query=[evidence.query], data=found)


def attributes(metadata: Mapping[str, Any]) -> dict[str, Scalar]:
    """Metadata as OpenAI's attributes, which have no lists: those are written as one text.

    >>> attributes({"year": 1990, "tags": ["sea", "isle"]})
    {'year': 1990, 'tags': 'sea, isle'}
    """
    return {key: ", ".join(map(str, value)) if isinstance(value, list) else value for key, value in metadata.items()}


def _found_file(passage: Passage, score: float, generation: Generation, base: str) -> FoundFile:
    return FoundFile(
        file_id=passage.source,
        filename=passage.source,
        score=score,
        attributes=attributes(generation.metadata(passage.source)),
        content=[TextContent(text=passage.text)],
        start=passage.start,
        end=passage.end,
        page=passage.page,
        url=passage_url(base, of_passage(passage)),
    )
