"""/v1/documents: what the index holds; with --writable also adding and deleting."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Query, UploadFile

from graph.documents.ocr.types import ocr_by
from graph.documents.parse.types import Limits
from graph.shared.types import Document
from serve.http.documents.document_views import (
    DocumentInfo,
    DocumentList,
    DocumentText,
    NewDocuments,
    PassageInfo,
    WriteResult,
)
from serve.http.documents.uploads import Uploads
from serve.http.documents.writing import add_documents, check_writable, delete_document, no_document
from serve.http.routes.services import SeenCollection, Services
from serve.http.shared.errors import ApiError


def documents_router(services: Services) -> APIRouter:
    """Routes over `services`; those that write answer 403 unless the server is writable."""
    router = APIRouter(prefix="/v1/documents", tags=["documents"])

    @router.get("")
    def documents(
        seen: SeenCollection,
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
    def document(source: str, seen: SeenCollection) -> DocumentText:
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
    async def add(request: NewDocuments, seen: SeenCollection) -> WriteResult:
        """Add documents, or replace those with the same source, and take the new index into use."""
        documents = [Document(each.source, each.title, each.text, each.metadata) for each in request.documents]
        for each in documents:
            if not each.text.strip():
                raise ApiError(400, "empty_document", f"document {each.source[:80]!r} has no text", "documents")
        return await add_documents(services, seen, documents)

    @router.post("/files")
    async def upload(files: list[UploadFile], seen: SeenCollection) -> WriteResult:
        """Add files (text, source code, HTML, PDF, Office, CSV, EPUB, e-mail, notebooks); a file's name becomes the document's source."""
        check_writable(services, seen)
        return await add_documents(services, seen, await uploads.read(files))

    @router.delete("/{source:path}")
    async def delete(source: str, seen: SeenCollection) -> WriteResult:
        """Delete a document and everything that was read from it alone."""
        return await delete_document(services, seen, source)


def document_info(data: Any, row: int) -> DocumentInfo:
    """A document of an IndexData."""
    metadata = json.loads(data.document_metadata[row])
    return DocumentInfo(source=data.document_sources[row], title=data.document_titles[row], metadata=metadata)
