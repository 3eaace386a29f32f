"""The MCP tools: `search`, `fetch`, `explain`, `ask` if there is a model, and `add_document` for callers that may write.

The protocol's schemas are generated from the classes of arguments and results. Each document is also a resource with a URI; its text is
assembled from its passages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, get_type_hints
from urllib.parse import quote, unquote

from mcp.types import Tool as ListedTool
from mcp.types import ToolAnnotations
from pydantic import BaseModel, Field, ValidationError, model_validator
from starlette.requests import Request

from graph.answer.attribution import Quote
from graph.answer.context import of_passage
from graph.answer.support import NotChecked, Unsupported
from graph.shared.modes import Mode
from graph.shared.pages import PAGE_STARTS
from graph.types import Document, Evidence, Passage
from serve.citations import passage_url
from serve.http.encoding import StrictModel, Text
from serve.http.errors import ApiError
from serve.http.keys import Access
from serve.http.routes.chat import checked_completion
from serve.http.routes.documents import NewDocument, add_documents, no_document
from serve.server.chat_request import chat_request
from serve.server.collections import CollectionView
from serve.server.completion import prepare
from serve.server.retriever import MAX_CONDITIONS, MAX_K, Condition, RetrievalOptions
from serve.server.services import Services
from serve.stream import REASONING

Question = Annotated[Text, Field(min_length=1, description="the question, in plain words")]
Collection = Annotated[
    Text | None, Field(max_length=200, description="name of the collection, if the server has several")
]


class Arguments(StrictModel):
    """Arguments of every tool. An optional argument that is null or "" counts as omitted, since language models often fill in all of them."""

    collection: Collection = None

    @model_validator(mode="before")
    @classmethod
    def _drop_empty(cls, values: dict[str, Any]) -> dict[str, Any]:
        optional = {name for name, field in cls.model_fields.items() if not field.is_required()}
        return {name: value for name, value in values.items() if name not in optional or value not in (None, "")}


class Search(Arguments):
    """How to search for passages."""

    mode: Mode | None = Field(
        None, description="how to search: auto chooses, hops follows links between documents, dense is plain similarity"
    )
    k: int | None = Field(
        None, ge=1, le=MAX_K, description="how many passages to find; by default the server's setting"
    )
    where: list[Condition] = Field(
        [], max_length=MAX_CONDITIONS, description="conditions on documents, such as year>=1990 or source=reports/*"
    )


class SearchArguments(Search):
    query: Question


class QuestionArguments(Search):
    question: Question


class AskArguments(QuestionArguments):
    model: Annotated[Text, Field(max_length=200)] | None = Field(
        None, description="model that answers; the server's first model by default"
    )


class FetchArguments(Arguments):
    id: Text = Field(min_length=1, max_length=1000, description="the id of a result of search, or a document's source")
    start: int | None = Field(
        None, ge=0, description="character of the document to start at; by default the start of the passage or document"
    )


class AddArguments(NewDocument, Arguments):
    """A document to add, and its collection."""


class DocumentText(BaseModel):
    """Characters start to end of the document `source`; `url` opens it."""

    id: str
    title: str
    url: str
    text: str
    source: str
    start: int
    end: int


class Result(DocumentText):
    """A passage: characters start to end of the document `source`, and the page, if any; `url` opens it."""

    page: int | None
    score: float


class SearchResults(BaseModel):
    """The passages for a query, best first."""

    results: list[Result]
    mode: str


class FetchedText(DocumentText):
    """Characters start to end of the text of a document; there is more if `end` is less than `length`."""

    length: int
    metadata: dict[str, Any]


class PassagePath(BaseModel):
    """The steps from the question to a passage."""

    id: str
    title: str
    source: str
    start: int
    end: int
    steps: tuple[str, ...]


class Explanation(BaseModel):
    """The steps of a search, and the path to each passage, best first."""

    mode: str
    search: tuple[str, ...]
    ways: list[PassagePath]


class Citation(BaseModel):
    """A passage that the answer cites as [number], and its page, if any; for a summary, `source` is empty and `members` are its passages.

    `attributed`: the model cited nothing, and the server found the passage.
    """

    number: int
    id: str
    title: str
    source: str
    start: int
    end: int
    text: str
    members: tuple[str, ...]
    page: int | None
    attributed: bool
    quotes: tuple[Quote, ...]


class CheckedAnswer(BaseModel):
    """An answer. `removed` are cited numbers without a passage, removed from the text; `left_out` counts passages that did not fit the model's window.

    If the model wrote no answer (`answered` false), the nearest passage is quoted instead. `unsupported` are the sentences that the
    passages do not seem to support, `not_checked` those that could not be checked, and `checked` counts the checked sentences (null: no check).
    """

    answer: str
    reason: str
    citations: list[Citation]
    removed: tuple[int, ...]
    left_out: int
    cut_off: bool
    answered: bool
    unsupported: tuple[Unsupported, ...]
    not_checked: tuple[NotChecked, ...]
    checked: int | None


class AddResult(BaseModel):
    """The document is in the index; `written` is 0 if it was there already, unchanged."""

    source: str
    written: int


SCHEME = "modegraph"
URI_TEMPLATE = f"{SCHEME}://{{collection}}/{{+source}}"


def document_uri(collection: str, source: str) -> str:
    """The URI of a document as a resource.

    >>> document_uri("handbook", "isles/tarn 2.md")
    'modegraph://handbook/isles/tarn%202.md'
    """
    return f"{SCHEME}://{quote(collection, safe='')}/{quote(source)}"


def read_uri(uri: str) -> tuple[str, str] | None:
    """The collection and the source in a URI; None for any other URI.

    >>> read_uri("modegraph://handbook/isles/tarn%202.md"), read_uri("file:///etc/passwd")
    (('handbook', 'isles/tarn 2.md'), None)
    """
    head, _, rest = uri.partition("://")
    collection, _, source = rest.partition("/")
    return (unquote(collection), unquote(source)) if head == SCHEME and collection and source else None


def document_text(passages: Iterable[Passage]) -> str:
    """The text of a document from its passages in order: overlaps appear once, gaps become newlines.

    >>> document_text([Passage("1", "s", "", 0, 0, 5, "ab cd"), Passage("2", "s", "", 1, 3, 6, "cde"), Passage("3", "s", "", 2, 7, 8, "f")])
    'ab cde\\nf'
    """
    parts: list[str] = []
    length = 0
    for passage in passages:
        parts += ["\n" * (passage.start - length), passage.text[max(0, length - passage.start) :]]
        length = max(length, passage.end)
    return "".join(parts)


FETCHED_CHARS = 40_000
"""The largest number of characters that `fetch` returns per call."""


@dataclass(frozen=True)
class Call:
    """A tool call: the caller's rights, and the HTTP request (None over standard input)."""

    services: Services
    access: Access
    request: Request | None

    async def view(self, collection: str | None) -> CollectionView:
        return await self.services.collections.view(self.access, collection)

    def url(self, view: CollectionView, passage: Passage) -> str:
        """The URL of a passage on the server's page, or, over standard input, the URI of its document as a resource."""
        if self.request is None:
            return document_uri(view.name, passage.source)
        return passage_url(self.services.page_url(self.request, view), of_passage(passage))


@dataclass(frozen=True)
class Tool:
    """A tool: its function, which gives the tool its name, arguments and result; its description, and whether it changes the index."""

    run: Callable[[Call, Any], Awaitable[BaseModel]]
    description: str
    writes: bool = False

    @property
    def name(self) -> str:
        return self.run.__name__

    def to_protocol(self) -> ListedTool:
        types = get_type_hints(self.run)
        return ListedTool(
            name=self.name,
            description=self.description,
            input_schema=types["arguments"].model_json_schema(),
            output_schema=types["return"].model_json_schema(),
            annotations=ToolAnnotations(read_only_hint=not self.writes, open_world_hint=False),
        )

    async def call(self, call: Call, arguments: dict[str, Any]) -> BaseModel:
        """The tool's result; ApiError or UserError for an error that the caller can correct."""
        try:
            parsed = get_type_hints(self.run)["arguments"].model_validate(arguments)
        except ValidationError as problems:
            first = problems.errors()[0]
            location = ".".join(map(str, first["loc"]))
            raise ApiError(422, "bad_value", f"{location}: {first['msg']}", location) from None
        return await self.run(call, parsed)


def tools_for(services: Services, access: Access) -> dict[str, Tool]:
    """The tools available to a caller, by name."""
    may_write = services.settings.writable and "write" in access.scopes
    tools = [SEARCH, FETCH, EXPLAIN, *([ASK] if services.backend.models else []), *([ADD] if may_write else [])]
    return {tool.name: tool for tool in tools}


async def search(call: Call, arguments: SearchArguments) -> SearchResults:
    """The passages for a query."""
    view, evidence = await _find(call, arguments.query, arguments)
    results = [
        Result(**vars(found.item), score=found.score, url=call.url(view, found.item)) for found in evidence.passages
    ]
    return SearchResults(results=results, mode=evidence.trace.mode)


async def fetch(call: Call, arguments: FetchArguments) -> FetchedText:
    """The text of a document from an offset, from a passage, or from its beginning; at most FETCHED_CHARS."""
    view = await call.view(arguments.collection)
    current = view.generation
    row = current.row("passage", arguments.id)
    passage = current.index.passage(row) if row is not None else None
    source = passage.source if passage is not None else arguments.id
    if current.row("document", source) is None:
        raise no_document(arguments.id)
    passages = await call.services.retriever.in_thread(partial(current.index.passages_of, source))
    text = document_text(passages)
    start = arguments.start if arguments.start is not None else passage.start if passage is not None else 0
    part = text[start : start + FETCHED_CHARS]
    title = passages[0].title if passages else ""
    metadata = {key: value for key, value in current.metadata(source).items() if key != PAGE_STARTS}
    excerpt = Passage(arguments.id, source, title, 0, start, start + len(part), part)
    return FetchedText(
        id=arguments.id,
        title=title,
        url=call.url(view, excerpt),
        text=part,
        source=source,
        start=start,
        end=start + len(part),
        length=len(text),
        metadata=metadata,
    )


async def explain(call: Call, arguments: QuestionArguments) -> Explanation:
    """How a question led to its passages: their paths, or, if the mode has none, their scores."""
    _, evidence = await _find(call, arguments.question, arguments)
    paths = evidence.paths or tuple((f"score {found.score:.3f}",) for found in evidence.passages)
    passage_paths = [
        PassagePath(**vars(found.item), steps=path) for found, path in zip(evidence.passages, paths, strict=True)
    ]
    return Explanation(mode=evidence.trace.mode, search=evidence.trace.steps, ways=passage_paths)


async def ask(call: Call, arguments: AskArguments) -> CheckedAnswer:
    """An answer, in the same steps as a chat completion."""
    services = call.services
    values = {
        "model": arguments.model or services.backend.models[0],
        "messages": [{"role": "user", "content": arguments.question}],
        "retrieval": {"mode": arguments.mode, "k": arguments.k, "where": arguments.where},
    }
    prepared = await prepare(services, chat_request(values), call.access, arguments.collection, "collection")
    choice = (await checked_completion(services, prepared, ""))["choices"][0]
    message, metadata = choice["message"], prepared.retrieval or {}
    return CheckedAnswer(
        answer=message["content"] or "",
        reason=message.get(REASONING) or "",
        citations=[Citation.model_validate(citation) for citation in message.get("citations", ())],
        removed=message.get("removed", ()),
        left_out=metadata.get("left_out", 0),
        cut_off=choice.get("finish_reason") == "length",
        answered=message.get("answered", True),
        unsupported=message.get("unsupported", ()),
        not_checked=message.get("not_checked", ()),
        checked=message.get("checked"),
    )


async def add_document(call: Call, arguments: AddArguments) -> AddResult:
    """Add a document to the index, and switch to the new index."""
    if not arguments.text.strip():
        raise ApiError(400, "empty_document", "text: the document has no text", "text")

    async def read() -> list[Document]:
        return [Document(arguments.source, arguments.title, arguments.text, arguments.metadata)]

    view = await call.view(arguments.collection)
    result = await add_documents(call.services, view, [arguments.source], read)
    return AddResult(source=arguments.source, written=result.report["written"])


async def _find(call: Call, question: str, arguments: Search) -> tuple[CollectionView, Evidence]:
    retriever, view = call.services.retriever, await call.view(arguments.collection)
    options = RetrievalOptions.model_validate({"mode": arguments.mode, "k": arguments.k, "where": arguments.where})
    settings = retriever.settings_of(options)
    return view, await retriever.find(retriever.check_question(question), settings, None, view.generation)


SEARCH = Tool(search, "Find the passages relevant to a query, with their documents and character offsets.")
FETCH = Tool(fetch, "Read a document, from a search result onwards or by its source.")
EXPLAIN = Tool(explain, "Explain step by step how a question led to each passage found.")
ASK = Tool(ask, "Answer a question from the documents; every citation is checked against the passages read.")
ADD = Tool(add_document, "Add a document to the collection, or replace the one with the same source.", writes=True)
