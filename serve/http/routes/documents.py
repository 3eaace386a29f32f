"""/v1/documents: what the index holds; with --writable also adding and deleting."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, UploadFile

from graph.build.edit import Edit
from graph.documents.parse.types import Limits
from graph.shared.types import Document
from serve.http.routes.document_views import (
    DocumentInfo,
    DocumentList,
    DocumentText,
    NewDocuments,
    PassageInfo,
    WriteResult,
)
from serve.http.routes.services import Services
from serve.http.routes.uploads import Uploads
from serve.http.routes.write_queue import WriteQueue
from serve.http.shared.errors import ApiError
from serve.live_index import LiveIndex


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
        return DocumentList(index=current.identity, generation=current.number, total=total, documents=found)

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
    settings, live = services.settings, services.live
    uploads = Uploads(Limits(settings.file_seconds, settings.file_memory_mb))
    writing = WriteQueue(live, settings.write_wait_s)

    async def add_all(documents: Sequence[Document]) -> WriteResult:
        edited = await writing.write(Edit(add=documents))
        return _written(live, asdict(edited.report))

    @router.post("")
    async def add(request: NewDocuments) -> WriteResult:
        """Add documents, or replace those with the same source, and take the new index into use."""
        documents = [Document(each.source, each.title, each.text, each.metadata) for each in request.documents]
        for each in documents:
            if not each.text.strip():
                raise ApiError(400, "empty_document", f"document {each.source[:80]!r} has no text", "documents")
        _check_writable(services)
        return await add_all(documents)

    @router.post("/files")
    async def upload(files: list[UploadFile]) -> WriteResult:
        """Add files (text, source code, HTML, PDF, Office, EPUB, e-mail, notebooks); a file's name becomes the document's source."""
        _check_writable(services)
        return await add_all(await uploads.read(files))

    @router.delete("/{source:path}")
    async def delete(source: str) -> WriteResult:
        """Delete a document and everything that was read from it alone."""
        _check_writable(services)
        if source not in live.current.rows["document"]:
            raise no_document(source)
        edited = await writing.write(Edit(delete=source))
        if not edited.deleted:
            raise no_document(source)
        left = {"documents": edited.report.documents, "passages": edited.report.passages}
        return _written(live, {"deleted": source, **left})


def _written(live: LiveIndex, report: dict[str, Any]) -> WriteResult:
    return WriteResult(index=live.current.identity, generation=live.current.number, report=report)


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
