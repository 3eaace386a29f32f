"""/v1/documents: the documents of the index; with --writable also additions, uploads and deletions, which the audit log records.

The name of an uploaded file becomes the document's source and is never used as a path (above 1 MiB, the content is stored in an unnamed
temporary file). Names that lead out of their folder are refused nevertheless, since other programs may use sources as file names. Plain text
is read here, other formats in a process that is killed when the client disconnects. `add_documents` is shared with the MCP tools."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from unicodedata import bidirectional, category
from urllib.parse import unquote

import numpy as np
from fastapi import APIRouter, Query, UploadFile
from pydantic import BaseModel, Field, StringConstraints, field_validator
from starlette.convertors import PathConvertor, register_url_convertor

from graph.build.build import Edit, EditResult
from graph.documents.parse.formats import EXTENSIONS_SHOWN, SUFFIXES, Limits
from graph.documents.parse.ocr import check_programs, ocr_settings
from graph.documents.read import read_bytes
from graph.documents.sandbox import ParseWorker
from graph.errors import UserError
from graph.types import Document
from serve.http.encoding import StrictModel, Text
from serve.http.errors import ApiError, NotInUse, lacks_scope
from serve.server.collections import CollectionView
from serve.server.listing import Listing, Order, date_of
from serve.server.mentions import entity_row, mentions_of
from serve.server.services import RequestedCollection, Services

MAX_SOURCE_CHARS = 500
PARALLEL_UPLOADS = 2


class AnyPathConvertor(PathConvertor):
    """A path that may, unlike Starlette's, contain a line feed: the source of a document that was not added over HTTP can contain one."""

    regex = "(?s:.*)"


register_url_convertor("any_path", AnyPathConvertor())


def source_problem(source: str) -> str:
    """The reason why a name cannot be a document's source; "" if it can.

    >>> source_problem("reports/2024.md"), source_problem("Q: how.md"), source_problem("%2e%2e/passwd")
    ('', '', 'the name must not lead out of its folder')
    """
    plain = unquote(unquote(source)).replace("\\", "/")
    if any(
        category(character) in ("Cc", "Cs", "Zl", "Zp") or bidirectional(character) in ("LRO", "RLO")
        for character in plain
    ):
        return "the name contains a control character"
    if re.match(r"[/~]|[A-Za-z]:/", plain) or ".." in plain.split("/"):
        return "the name must not lead out of its folder"
    return ""


class Uploads:
    """Reads the uploaded files of at most PARALLEL_UPLOADS requests at a time, in separate threads.

    UserError when OCR is configured and its program is missing.
    """

    def __init__(self, limits: Limits) -> None:
        if limits.ocr is not None:
            check_programs(limits.ocr)
        self._limits = limits
        self._turns = asyncio.Semaphore(PARALLEL_UPLOADS)
        self._threads = ThreadPoolExecutor(PARALLEL_UPLOADS, "uploads")

    async def read(self, files: Sequence[UploadFile]) -> list[Document]:
        """The files as documents; ApiError 400 for a name that cannot be a source, an unknown extension, unreadable bytes or a file without text.

        Cancellation kills the reading process.
        """
        for file in files:
            _check_name(file.filename or "")
        async with self._turns:
            named = [(file.filename or "", await file.read()) for file in files]
            with ParseWorker(self._limits) as worker:
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._threads, _read_all, named, worker)


def _check_name(name: str) -> None:
    problem = source_problem(name) if name else "every file needs a name"
    if not problem and len(name) > MAX_SOURCE_CHARS:
        problem = f"the name has {len(name)} characters; the limit is {MAX_SOURCE_CHARS}"
    if problem:
        raise ApiError(400, "bad_name", f"file {name[:80]!r}: {problem}", "files")
    if Path(name).suffix.lower() not in SUFFIXES:
        raise ApiError(400, "bad_extension", f"{name}: its extension is not one of {EXTENSIONS_SHOWN}", "files")


def _read_all(named: Sequence[tuple[str, bytes]], worker: ParseWorker) -> list[Document]:
    documents = []
    for name, data in named:
        try:
            documents.append(read_bytes(data, name, name, worker))
        except UserError as problem:
            raise ApiError(400, "unreadable", str(problem), "files") from None
        if not documents[-1].text.strip():
            raise ApiError(400, "empty_document", f"{name} has no text", "files")
    return documents


Scalar = Text | bool | int | Annotated[float, Field(allow_inf_nan=False)]
Key = Annotated[Text, StringConstraints(min_length=1, max_length=100)]


class DocumentInfo(BaseModel):
    """A document of the index, without its text."""

    source: str
    title: str
    metadata: dict[str, Any]


class ListedDocument(DocumentInfo):
    """A document in a list: `date` comes from its metadata, `preview` is the beginning of its first passage.

    `unread` counts passages without a proposition: a model failed to read them, or they have no sentence.
    """

    date: str | None
    characters: int
    passages: int
    unread: int
    preview: str


class DocumentList(BaseModel):
    """Some of the documents; `total` and `total_passages` count all that match. `index` and `generation` are as in the response of a search."""

    index: str
    generation: int
    total: int
    total_passages: int
    documents: list[ListedDocument]


class PassageInfo(BaseModel):
    """A passage of a document, characters start to end of its text."""

    id: str
    order: int
    start: int
    end: int
    text: str


class DocumentText(DocumentInfo):
    """A document with its passages in order."""

    passages: list[PassageInfo]


class NewDocument(StrictModel):
    """A document to add; an existing document with the same source is replaced."""

    source: Text = Field(
        min_length=1, max_length=MAX_SOURCE_CHARS, description="name of the document, unique in the index"
    )
    text: Text = Field(min_length=1)
    title: Text = Field("", max_length=1000)
    metadata: dict[Key, Scalar | list[Scalar]] = Field(default={}, description="metadata for filters")

    @field_validator("source")
    @classmethod
    def _check_source(cls, value: str) -> str:
        if problem := source_problem(value):
            raise ValueError(problem)
        return value

    @field_validator("metadata")
    @classmethod
    def _check_keys(cls, value: dict[str, Any]) -> dict[str, Any]:
        if value.keys() & {"source", "title"}:
            raise ValueError("metadata cannot have the keys source and title: they are fields of the document")
        return value


class NewDocuments(StrictModel):
    """Documents to add in one request."""

    documents: list[NewDocument] = Field(min_length=1, max_length=10_000)

    async def read(self) -> list[Document]:
        """The documents; ApiError 400 for one without text."""
        for item in self.documents:
            if not item.text.strip():
                raise ApiError(400, "empty_document", f"document {item.source[:80]!r} has no text", "documents")
        return [Document(item.source, item.title, item.text, item.metadata) for item in self.documents]


class WriteResult(BaseModel):
    """The result of a change; `index` and `generation` are those in use afterwards."""

    index: str
    generation: int
    report: dict[str, Any]


async def add_documents(
    services: Services, view: CollectionView, sources: Sequence[str], read: Callable[[], Awaitable[Sequence[Document]]]
) -> WriteResult:
    """Add the documents that `read` returns, replacing those with the same source.

    ApiError 403 if `sources` may not be written, 400 if two of them are equal, or any ApiError of `read` or of the write.
    """
    with _audit(services, view, "add", sources) as result:
        check_writable(services, view)
        _check_sources(view, sources)
        edited = await services.collections.writing[view.name].write(Edit(add=await read()), result)
    return await _write_result(services, view, vars(edited.report), ("written", "unchanged"))


async def delete_document(services: Services, view: CollectionView, source: str) -> WriteResult:
    """Delete a document; ApiError 403 as in `check_writable`, 404 for a document that does not exist or is hidden from the caller."""
    with _audit(services, view, "delete", [source]) as result:
        check_writable(services, view)
        if view.generation.row("document", source) is None:
            raise no_document(source)
        edited = await services.collections.writing[view.name].write(Edit(delete=source), result)
    counts = {"documents": edited.report.documents, "passages": edited.report.passages}
    return await _write_result(services, view, {"deleted": source, **counts}, ("deleted",))


def check_writable(services: Services, view: CollectionView) -> None:
    """ApiError 403 unless the server is writable and the caller may write."""
    if not services.settings.writable:
        raise ApiError(403, "read_only", "this server does not change its index: start it with --writable")
    if "write" not in view.access.scopes:
        raise lacks_scope("write")


def no_document(source: str) -> ApiError:
    """404 for a document that does not exist."""
    return ApiError(404, "no_such_document", f"the index has no document {source[:80]!r}", "source")


def _check_sources(view: CollectionView, sources: Sequence[str]) -> None:
    """ApiError 403 for sources that would not be visible to the caller, whether or not such documents exist; 400 for a source that occurs twice."""
    for source, count in Counter(sources).items():
        if count > 1:
            message = f"{count} documents have the name {source[:80]!r}; give each its own name"
            raise ApiError(400, "repeated_source", message, "source")
        if not all(condition.holds(source) for condition in view.access.where):
            conditions = " and ".join(f"{item.key}{item.operator}{item.value}" for item in view.access.where)
            message = f"source {source[:80]!r}: this key may write only documents with {conditions}"
            raise ApiError(403, "not_yours", message, "source")


@contextmanager
def _audit(
    services: Services, view: CollectionView, action: str, sources: Sequence[str]
) -> Iterator[Future[EditResult]]:
    """Record in the audit log the outcome of the block or, once its write has begun, that of the write, even if the client has disconnected.

    The block gets a future for the result of its write.
    """
    record = partial(services.audit.record, view.access.key, view.access.key_id, view.name, action, sources)
    result: Future[EditResult] = Future()
    outcome = "gone"
    try:
        yield result
    except Exception as problem:
        outcome = _outcome(problem)
        raise
    finally:
        if result.cancel():
            record(outcome)
        elif result.done():
            record(_outcome(result.exception()))
        else:
            result.add_done_callback(lambda written: record(_outcome(written.exception())))


def _outcome(problem: BaseException | None) -> str:
    """The outcome of a change, for the audit log."""
    if isinstance(problem, ApiError):
        return "stored" if isinstance(problem, NotInUse) else problem.code
    return "done" if problem is None else "failed"


async def _write_result(
    services: Services, view: CollectionView, report: dict[str, Any], visible: Sequence[str]
) -> WriteResult:
    """The report for a caller; with limited access, only its `visible` fields and the counts of what the caller can read."""
    current = (await services.collections.view(view.access, view.name)).generation
    if view.access.where:
        data = current.index.data
        counts = {"documents": len(data.document_sources), "passages": len(data.passage_ids)}
        report = {**{name: report[name] for name in visible}, **counts}
    return WriteResult(index=current.identity, generation=current.number, report=report)


def documents_router(services: Services) -> APIRouter:
    """The routes under /v1/documents; those that write answer 403 unless the server is writable."""
    router = APIRouter(prefix="/v1/documents", tags=["documents"])

    @router.get("")
    def documents(
        view: RequestedCollection,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
        sort: Order = "source",
        descending: bool = False,
        entity: Annotated[
            str | None,
            Query(min_length=1, max_length=1000, description="only documents that mention this entity (id or text)"),
        ] = None,
    ) -> DocumentList:
        """The documents of the index, sorted by source, title, size or the date in their metadata (`date`, `updated`, `year`, …)."""
        current = view.generation
        rows = current.listing.rows(sort, descending)
        if entity is not None:
            mentions_KU = mentions_of(current.index, [entity_row(current, entity, "entity")])
            rows = rows[np.isin(rows, mentions_KU.indices)]
        return DocumentList(
            index=current.identity,
            generation=current.number,
            total=len(rows),
            total_passages=int(np.diff(current.listing.first_passage_U)[rows].sum()),
            documents=[listed_document(current.listing, row) for row in rows[offset : offset + limit].tolist()],
        )

    @router.get("/{source:any_path}")
    def document(source: str, view: RequestedCollection) -> DocumentText:
        """One document with its passages in order."""
        current = view.generation
        row = current.row("document", source)
        if row is None:
            raise no_document(source)
        passages = [PassageInfo(**vars(item)) for item in current.index.passages_of(source)]
        return DocumentText(**document_info(current.index.data, row).model_dump(), passages=passages)

    _add_write_routes(router, services)
    return router


def _add_write_routes(router: APIRouter, services: Services) -> None:
    settings = services.settings
    scans = ocr_settings(settings.ocr, settings.ocr_languages, settings.ocr_pages, settings.ocr_page_seconds)
    uploads = Uploads(Limits(settings.file_seconds, settings.file_memory_mb, scans, settings.whole_pages))

    @router.post("")
    async def add(request: NewDocuments, view: RequestedCollection) -> WriteResult:
        """Add documents, or replace those with the same source, and switch to the new index."""
        return await add_documents(services, view, [item.source for item in request.documents], request.read)

    @router.post("/files")
    async def upload(files: list[UploadFile], view: RequestedCollection) -> WriteResult:
        """Add files (text, source code, HTML, PDF, Office, CSV, EPUB, e-mail, notebooks); a file's name becomes the document's source."""
        names = [file.filename or "" for file in files]
        return await add_documents(services, view, names, partial(uploads.read, files))

    @router.delete("/{source:any_path}")
    async def delete(source: str, view: RequestedCollection) -> WriteResult:
        """Delete a document and everything derived only from it."""
        return await delete_document(services, view, source)


def document_info(data: Any, row: int) -> DocumentInfo:
    """The document in a row of an index, without its text."""
    metadata = json.loads(data.document_metadata[row])
    return DocumentInfo(source=data.document_sources[row], title=data.document_titles[row], metadata=metadata)


def listed_document(listing: Listing, row: int) -> ListedDocument:
    """The document in a row of a listing."""
    info = document_info(listing.data, row)
    return ListedDocument(
        **info.model_dump(),
        date=date_of(info.metadata),
        characters=int(listing.characters_U[row]),
        passages=int(listing.first_passage_U[row + 1] - listing.first_passage_U[row]),
        unread=int(listing.unread_U[row]),
        preview=listing.preview(row),
    )
