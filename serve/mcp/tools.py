"""The MCP tools: search, fetch, explain, ask where there is a model, and add_document where the caller may write.

Documents have addresses as resources, and their texts are put together from passages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote, unquote

from mcp.types import Tool as ListedTool
from mcp.types import ToolAnnotations
from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from graph.answer.context import of_passage
from graph.types import Document, Evidence, Passage
from serve.citations import passage_url
from serve.http.errors import ApiError
from serve.http.keys import Access
from serve.http.routes.chat import checked_completion
from serve.http.routes.documents import add_documents, no_document
from serve.mcp.schemas import (
    AddArguments,
    Added,
    Answered,
    AskArguments,
    Citation,
    Explanation,
    FetchArguments,
    Fetched,
    Path,
    QuestionArguments,
    Result,
    Search,
    SearchArguments,
    SearchResults,
)
from serve.server.chat_request import chat_request
from serve.server.collections import CollectionView
from serve.server.completion import prepare
from serve.server.retriever import RetrievalOptions
from serve.server.services import Services
from serve.stream import REASONING

SCHEME = "modegraph"
URI_TEMPLATE = f"{SCHEME}://{{collection}}/{{+source}}"


def document_uri(collection: str, source: str) -> str:
    """The address of a document as a resource.

    >>> document_uri("handbook", "isles/tarn 2.md")
    'modegraph://handbook/isles/tarn%202.md'
    """
    return f"{SCHEME}://{quote(collection, safe='')}/{quote(source)}"


def read_uri(uri: str) -> tuple[str, str] | None:
    """The collection and the source that an address names; None for an address of another form.

    >>> read_uri("modegraph://handbook/isles/tarn%202.md"), read_uri("file:///etc/passwd")
    (('handbook', 'isles/tarn 2.md'), None)
    """
    head, _, rest = uri.partition("://")
    collection, _, source = rest.partition("/")
    return (unquote(collection), unquote(source)) if head == SCHEME and collection and source else None


def document_text(passages: Iterable[Passage]) -> str:
    """The text of a document from its passages in order: what two of them share stands once, a gap between two is line ends.

    >>> document_text([Passage("1", "s", "", 0, 0, 5, "ab cd"), Passage("2", "s", "", 1, 3, 6, "cde"), Passage("3", "s", "", 2, 7, 8, "f")])
    'ab cde\\nf'
    """
    parts: list[str] = []
    length = 0
    for each in passages:
        parts += ["\n" * (each.start - length), each.text[max(0, length - each.start) :]]
        length = max(length, each.end)
    return "".join(parts)


FETCHED_CHARS = 40_000
"""What `fetch` returns at a time."""


@dataclass(frozen=True)
class Call:
    """Who calls a tool: with these rights, by this HTTP request (None over standard input)."""

    services: Services
    access: Access
    request: Request | None

    async def seen(self, collection: str | None) -> CollectionView:
        """The collection that a call names."""
        return await self.services.collections.seen(self.access, collection)

    def url(self, seen: CollectionView, passage: Passage) -> str:
        """Where a passage can be opened: in the server's page, or, without one, its document as a resource."""
        if self.request is None:
            return document_uri(seen.name, passage.source)
        return passage_url(self.services.page_url(self.request, seen), of_passage(passage))


@dataclass(frozen=True)
class Tool:
    """A tool: what it is for, what it takes and returns, and whether it changes the index."""

    name: str
    about: str
    takes: type[BaseModel]
    returns: type[BaseModel]
    run: Callable[[Call, Any], Awaitable[BaseModel]]
    writes: bool = False

    def listed(self) -> ListedTool:
        """As the protocol lists it."""
        return ListedTool(
            name=self.name,
            description=self.about,
            input_schema=self.takes.model_json_schema(),
            output_schema=self.returns.model_json_schema(),
            annotations=ToolAnnotations(read_only_hint=not self.writes, open_world_hint=False),
        )

    async def call(self, call: Call, arguments: dict[str, Any]) -> BaseModel:
        """What the tool returns; ApiError or UserError for what the caller can mend."""
        try:
            taken = self.takes.model_validate(arguments)
        except ValidationError as problems:
            first = problems.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise ApiError(422, "bad_value", f"{place}: {first['msg']}", place) from None
        return await self.run(call, taken)


def tools_for(services: Services, access: Access) -> dict[str, Tool]:
    """The tools that a caller has, by name."""
    can = {SEARCH, FETCH, EXPLAIN}
    can |= {ASK} if services.backend.models else set()
    can |= {ADD} if services.settings.writable and "write" in access.scopes else set()
    return {tool.name: tool for tool in TOOLS if tool in can}


async def search(call: Call, asked: SearchArguments) -> SearchResults:
    """The passages for a query."""
    seen, evidence = await _find(call, asked.query, asked)
    results = [_result(call, seen, found.item, found.score) for found in evidence.passages]
    return SearchResults(results=results, mode=evidence.trace.mode)


async def fetch(call: Call, asked: FetchArguments) -> Fetched:
    """The text of a document, from a passage of it or a place in it on."""
    seen = await call.seen(asked.collection)
    current = seen.generation
    row = current.row("passage", asked.id)
    passage = current.index.passage(row) if row is not None else None
    source = passage.source if passage is not None else asked.id
    if current.row("document", source) is None:
        raise no_document(asked.id)
    passages = await call.services.retriever.in_thread(partial(current.index.passages_of, source))
    text = document_text(passages)
    start = asked.start if asked.start is not None else passage.start if passage is not None else 0
    cut = text[start : start + FETCHED_CHARS]
    place = Passage(asked.id, source, _title(passages), 0, start, start + len(cut), cut)
    return Fetched(
        id=asked.id,
        title=place.title,
        url=call.url(seen, place),
        text=cut,
        source=source,
        start=start,
        end=start + len(cut),
        length=len(text),
        metadata=current.metadata(source),
    )


async def explain(call: Call, asked: QuestionArguments) -> Explanation:
    """How a question led to its passages; one without a path was found by its own score."""
    _, evidence = await _find(call, asked.question, asked)
    paths = evidence.paths or tuple((f"scored {found.score:.3f} by itself",) for found in evidence.passages)
    ways = [
        Path(**{name: getattr(found.item, name) for name in ("id", "title", "source", "start", "end")}, steps=path)
        for found, path in zip(evidence.passages, paths, strict=True)
    ]
    return Explanation(mode=evidence.trace.mode, search=evidence.trace.steps, ways=ways)


async def ask(call: Call, asked: AskArguments) -> Answered:
    """An answer, by the same steps as a chat completion."""
    services = call.services
    values = {
        "model": asked.model or services.backend.models[0],
        "messages": [{"role": "user", "content": asked.question}],
        "retrieval": {"mode": asked.mode, "k": asked.k, "where": asked.where},
    }
    prepared = await prepare(services, chat_request(values), call.access, asked.collection, "collection")
    choice = (await checked_completion(services, prepared, ""))["choices"][0]
    said, told = choice["message"], prepared.retrieval or {}
    return Answered(
        answer=said["content"] or "",
        reason=said.get(REASONING) or "",
        citations=[Citation.model_validate(each) for each in said.get("citations", ())],
        removed=said.get("removed", ()),
        left_out=told.get("left_out", 0),
        cut_off=choice.get("finish_reason") == "length",
        answered=said.get("answered", True),
    )


async def add_document(call: Call, asked: AddArguments) -> Added:
    """Put a document into the index, and take the new index into use."""
    if not asked.text.strip():
        raise ApiError(400, "empty_document", "text: the document has no text", "text")
    seen = await call.seen(asked.collection)
    document = Document(asked.source, asked.title, asked.text, asked.metadata)
    made = await add_documents(call.services, seen, [document])
    return Added(source=asked.source, written=made.report["written"])


async def _find(call: Call, question: str, asked: Search) -> tuple[CollectionView, Evidence]:
    retriever, seen = call.services.retriever, await call.seen(asked.collection)
    options = RetrievalOptions.model_validate({"mode": asked.mode, "k": asked.k, "where": asked.where})
    settings = retriever.settings_of(options)
    return seen, await retriever.find(retriever.check_question(question), settings, None, seen.generation)


def _result(call: Call, seen: CollectionView, passage: Passage, score: float) -> Result:
    fields = {name: getattr(passage, name) for name in ("id", "title", "text", "source", "start", "end", "page")}
    return Result(**fields, score=score, url=call.url(seen, passage))


def _title(passages: tuple[Passage, ...]) -> str:
    return passages[0].title if passages else ""


SEARCH = Tool(
    "search",
    "Find the passages that bear on a query, with their documents and character offsets.",
    SearchArguments,
    SearchResults,
    search,
)
FETCH = Tool("fetch", "Read a document: from a result of search on, or by its source.", FetchArguments, Fetched, fetch)
EXPLAIN = Tool(
    "explain", "Tell step by step how a question led to each of its passages.", QuestionArguments, Explanation, explain
)
ASK = Tool(
    "ask",
    "Answer a question from the documents; every citation in the answer was checked against the passages read.",
    AskArguments,
    Answered,
    ask,
)
ADD = Tool(
    "add_document",
    "Add a document to the collection, or replace the one with the same source.",
    AddArguments,
    Added,
    add_document,
    writes=True,
)
TOOLS = (SEARCH, FETCH, EXPLAIN, ASK, ADD)
