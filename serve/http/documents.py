"""/v1/documents: what the index holds; with --writable also adding and deleting."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, UploadFile

from graph.build import build_index
from graph.errors import UserError
from graph.lifecycle import delete_documents
from graph.settings import IndexSettings
from graph.store import read_settings
from graph.types import Document
from serve.engines import open_model
from serve.http.document_views import DocumentInfo, DocumentList, DocumentText, NewDocuments, PassageInfo, Written
from serve.http.errors import ApiError
from serve.http.services import Services
from serve.http.uploads import read_upload

T = TypeVar("T")


def documents_router(services: Services) -> APIRouter:
    """Routes over `services`; those that write answer 403 unless the server is writable."""
    router = APIRouter(prefix="/v1/documents", tags=["documents"])

    @router.get("")
    def documents(
        limit: Annotated[int, Query(ge=1, le=1000)] = 100, offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0
    ) -> DocumentList:
        """The documents of the index, by source."""
        current = services.live.current
        data = current.index.data
        total = len(data.document_sources)
        rows = range(min(offset, total), min(offset + limit, total))
        found = [document_info(data, row) for row in rows]
        return DocumentList(generation=current.number, total=total, documents=found)

    @router.get("/{source:path}")
    def document(source: str) -> DocumentText:
        """One document with its passages in order."""
        current = services.live.current
        row = current.rows["document"].get(source)
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
    @router.post("")
    async def add(request: NewDocuments) -> Written:
        """Add documents, or replace those with the same source, and take the new index into use."""
        documents = [Document(each.source, each.title, each.text, each.metadata) for each in request.documents]
        for each in documents:
            if not each.text.strip():
                raise ApiError(400, "empty_document", f"document {each.source[:80]!r} has no text", "documents")
        return await _write(services, partial(_add_all, services, documents))

    @router.post("/files")
    async def upload(files: list[UploadFile]) -> Written:
        """Add files (.txt, .md, .html, .pdf); a file's name becomes the document's source."""
        _check_writable(services)
        return await _write(services, partial(_add_all, services, [await read_upload(file) for file in files]))

    @router.delete("/{source:path}")
    async def delete(source: str) -> Written:
        """Delete a document and everything that was read from it alone."""
        _check_writable(services)
        if source not in services.live.current.rows["document"]:
            raise no_document(source)
        return await _write(services, partial(_delete, services, source))


def document_info(data: Any, row: int) -> DocumentInfo:
    """A document of an IndexData."""
    metadata = json.loads(data.document_metadata[row])
    return DocumentInfo(source=data.document_sources[row], title=data.document_titles[row], metadata=metadata)


def no_document(source: str) -> ApiError:
    """404 for a document that is not there."""
    return ApiError(404, "no_such_document", f"the index has no document {source[:80]!r}", "source")


def _check_writable(services: Services) -> None:
    if not services.settings.writable:
        raise ApiError(403, "read_only", "this server does not change its index: start it with --writable")


async def _write(services: Services, work: Callable[[], dict[str, Any]]) -> Written:
    _check_writable(services)
    report = await asyncio.to_thread(_one_writer, work)
    await services.live.refresh()
    return Written(generation=services.live.current.number, report=report)


def _one_writer(work: Callable[[], T]) -> T:
    try:
        return work()
    except UserError as problem:
        if "being written by process" in str(problem):
            raise ApiError(409, "being_written", "the index is being written to; try again when that is done") from None
        raise


def _add_all(services: Services, documents: Sequence[Document]) -> dict[str, Any]:
    live = services.live
    settings: IndexSettings = read_settings(live.folder)
    return asdict(build_index(live.folder, documents, settings, live.open_encoder, open_model))


def _delete(services: Services, source: str) -> dict[str, Any]:
    data = delete_documents(services.live.folder, [source], services.live.open_encoder, open_model)
    return {"deleted": source, "documents": len(data.document_sources), "passages": len(data.passage_ids)}
