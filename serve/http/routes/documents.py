"""/v1/documents: what the index holds; with --writable also adding, uploading and deleting, each told to the audit log.

An upload's name becomes a document's source, never a path, and its bytes lie in no file of ours: plain text is read here, all else in a
process that is killed when the client goes away. Names that would lead elsewhere are refused all the same, since others may make files of
sources. `add_documents` and `delete_document` are the MCP tools' too."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import APIRouter, Query, UploadFile
from pydantic import BaseModel, Field, StringConstraints, field_validator

from graph.build.build import Edit
from graph.documents.parse.formats import ENDINGS_SHOWN, SUFFIXES, Limits
from graph.documents.parse.ocr import check_programs, ocr_by
from graph.documents.read import read_bytes
from graph.documents.sandbox import ParseWorker
from graph.errors import UserError
from graph.types import Document
from serve.http.encoding import Text
from serve.http.errors import ApiError
from serve.server.collections import CollectionView
from serve.server.services import RequestedCollection, Services

MAX_SOURCE_CHARS = 500
PARALLEL_UPLOADS = 2


def source_problem(source: str) -> str:
    """Why a name cannot be a document's source, or "".

    >>> source_problem("reports/2024.md"), source_problem("%2e%2e/passwd")
    ('', 'source: no name may lead out of its folder')
    """
    plain = unquote(unquote(source)).replace("\\", "/")
    if any(not character.isprintable() for character in plain):
        return "source: a control character (or NUL)"
    if plain.startswith(("/", "~")) or ".." in plain.split("/") or (len(plain) > 1 and plain[1] == ":"):
        return "source: no name may lead out of its folder"
    return ""


class Uploads:
    """Reads uploaded files: those of AT_ONCE requests at a time, in threads that nothing else waits for.

    UserError when scans are to be read and no program is there that does.
    """

    def __init__(self, limits: Limits) -> None:
        if limits.ocr is not None:
            check_programs(limits.ocr)
        self._limits = limits
        self._turns = asyncio.Semaphore(PARALLEL_UPLOADS)
        self._threads = ThreadPoolExecutor(PARALLEL_UPLOADS, "uploads")

    async def read(self, files: Sequence[UploadFile]) -> list[Document]:
        """The files as documents; ApiError 400 for a name that leads elsewhere, an ending or bytes that cannot be read.

        When it is cancelled, the process that reads is killed.
        """
        for file in files:
            _check_name(file.filename or "")
        async with self._turns:
            named = [(file.filename or "", await file.read()) for file in files]
            with ParseWorker(self._limits) as worker:
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._threads, _read_all, named, worker)


def _check_name(name: str) -> None:
    problem = source_problem(name) if name else "the file has no name"
    if problem or len(name) > MAX_SOURCE_CHARS:
        raise ApiError(400, "bad_name", problem or f"the name is longer than {MAX_SOURCE_CHARS} characters", "files")
    if Path(name).suffix.lower() not in SUFFIXES:
        raise ApiError(400, "bad_ending", f"{name}: its ending is not one of {ENDINGS_SHOWN}", "files")


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


class DocumentList(BaseModel):
    """Some of the documents, by source; `total` is how many there are. `index` and `generation` as in what a search answers."""

    index: str
    generation: int
    total: int
    documents: list[DocumentInfo]


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


class NewDocument(BaseModel):
    """A document to add; one with the same source is replaced."""

    source: Text = Field(min_length=1, max_length=MAX_SOURCE_CHARS, description="its name, unique in the index")
    text: Text = Field(min_length=1)
    title: Text = Field("", max_length=1000)
    metadata: dict[Key, Scalar | list[Scalar]] = Field(default={}, description="what filters can ask for")

    @field_validator("source")
    @classmethod
    def _plain(cls, value: str) -> str:
        problem = source_problem(value)
        if problem:
            raise ValueError(problem)
        return value

    @field_validator("metadata")
    @classmethod
    def _own_names(cls, value: dict[str, Any]) -> dict[str, Any]:
        if value.keys() & {"source", "title"}:
            raise ValueError("metadata cannot have the keys source and title: those are the document's own")
        return value


class NewDocuments(BaseModel):
    """Documents to add in one go."""

    documents: list[NewDocument] = Field(min_length=1, max_length=10_000)


class WriteResult(BaseModel):
    """What a change did; `index` and `generation` are those in use now."""

    index: str
    generation: int
    report: dict[str, Any]


async def add_documents(services: Services, seen: CollectionView, documents: Sequence[Document]) -> WriteResult:
    """Add documents, or replace those with the same source; ApiError 403 where they may not be written."""
    sources = [each.source for each in documents]
    with _audited(services, seen, "add", sources):
        check_writable(services, seen)
        _check_sources(seen, sources)
        edited = await services.collections.writing[seen.name].write(Edit(add=documents))
    return await _write_result(services, seen, vars(edited.report), ("written", "unchanged"))


async def delete_document(services: Services, seen: CollectionView, source: str) -> WriteResult:
    """Delete a document; ApiError 404 for one that the caller does not see."""
    with _audited(services, seen, "delete", [source]):
        check_writable(services, seen)
        if seen.generation.row("document", source) is None:
            raise no_document(source)
        edited = await services.collections.writing[seen.name].write(Edit(delete=source))
        if not edited.deleted:
            raise no_document(source)
    left = {"documents": edited.report.documents, "passages": edited.report.passages}
    return await _write_result(services, seen, {"deleted": source, **left}, ("deleted",))


def check_writable(services: Services, seen: CollectionView) -> None:
    """ApiError 403 unless the server was started to be written to, and the caller may."""
    if not services.settings.writable:
        raise ApiError(403, "read_only", "this server does not change its index: start it with --writable")
    if "write" not in seen.access.scopes:
        raise ApiError(403, "not_allowed", "this key is not good for that: it lacks the scope write")


def no_document(source: str) -> ApiError:
    """404 for a document that is not there."""
    return ApiError(404, "no_such_document", f"the index has no document {source[:80]!r}", "source")


def _check_sources(seen: CollectionView, sources: Sequence[str]) -> None:
    """ApiError 403 for a document that the caller would not see, whether there is one or not."""
    for source in sources:
        if not all(each.holds(source) for each in seen.access.where):
            told = " and ".join(f"{each.key}{each.operator}{each.value}" for each in seen.access.where)
            raise ApiError(403, "not_yours", f"source {source[:80]!r}: this key writes only where {told}", "source")


@contextmanager
def _audited(services: Services, seen: CollectionView, action: str, sources: Sequence[str]) -> Iterator[None]:
    """Tell the audit log how the block ended."""
    outcome = "gone"
    try:
        yield
        outcome = "done"
    except Exception as problem:
        outcome = problem.code if isinstance(problem, ApiError) else "failed"
        raise
    finally:
        services.audit.record(seen.access.key, seen.access.key_id, seen.name, action, sources, outcome)


async def _write_result(
    services: Services, seen: CollectionView, told: dict[str, Any], own: Sequence[str]
) -> WriteResult:
    """The report for a caller; where it does not see all documents, what is its `own` of it, and what it sees now."""
    current = (await services.collections.seen(seen.access, seen.name)).generation
    if seen.access.where:
        held = {"documents": len(current.index.data.document_sources), "passages": len(current.index.data.passage_ids)}
        told = {**{name: told[name] for name in own}, **held}
    return WriteResult(index=current.identity, generation=current.number, report=told)


def documents_router(services: Services) -> APIRouter:
    """Routes over `services`; those that write answer 403 unless the server is writable."""
    router = APIRouter(prefix="/v1/documents", tags=["documents"])

    @router.get("")
    def documents(
        seen: RequestedCollection,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
    ) -> DocumentList:
        """The documents of the index, by source."""
        current = seen.generation
        data = current.index.data
        total = len(data.document_sources)
        rows = range(min(offset, total), min(offset + limit, total))
        found = [document_info(data, row) for row in rows]
        return DocumentList(index=current.identity, generation=current.number, total=total, documents=found)

    @router.get("/{source:path}")
    def document(source: str, seen: RequestedCollection) -> DocumentText:
        """One document with its passages in order."""
        current = seen.generation
        row = current.row("document", source)
        if row is None:
            raise no_document(source)
        passages = [
            PassageInfo(id=each.id, order=each.order, start=each.start, end=each.end, text=each.text)
            for each in current.index.passages_of(source)
        ]
        return DocumentText(**document_info(current.index.data, row).model_dump(), passages=passages)

    _add_writing(router, services)
    return router


def _add_writing(router: APIRouter, services: Services) -> None:
    settings = services.settings
    scans = ocr_by(settings.ocr, settings.ocr_languages, settings.ocr_pages, settings.ocr_page_seconds)
    uploads = Uploads(Limits(settings.file_seconds, settings.file_memory_mb, scans, settings.whole_pages))

    @router.post("")
    async def add(request: NewDocuments, seen: RequestedCollection) -> WriteResult:
        """Add documents, or replace those with the same source, and take the new index into use."""
        documents = [Document(each.source, each.title, each.text, each.metadata) for each in request.documents]
        for each in documents:
            if not each.text.strip():
                raise ApiError(400, "empty_document", f"document {each.source[:80]!r} has no text", "documents")
        return await add_documents(services, seen, documents)

    @router.post("/files")
    async def upload(files: list[UploadFile], seen: RequestedCollection) -> WriteResult:
        """Add files (text, source code, HTML, PDF, Office, CSV, EPUB, e-mail, notebooks); a file's name becomes the document's source."""
        check_writable(services, seen)
        return await add_documents(services, seen, await uploads.read(files))

    @router.delete("/{source:path}")
    async def delete(source: str, seen: RequestedCollection) -> WriteResult:
        """Delete a document and everything that was read from it alone."""
        return await delete_document(services, seen, source)


def document_info(data: Any, row: int) -> DocumentInfo:
    """A document of an IndexData."""
    metadata = json.loads(data.document_metadata[row])
    return DocumentInfo(source=data.document_sources[row], title=data.document_titles[row], metadata=metadata)
