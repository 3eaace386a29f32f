"""Changes of a collection by its callers, whichever door they came through: allowed, done, and told to the audit log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from graph.build.edit import Edit
from graph.shared.types import Document
from serve.http.documents.document_views import WriteResult
from serve.http.routes.collections import Seen
from serve.http.routes.services import Services
from serve.http.shared.errors import ApiError


async def add_documents(services: Services, seen: Seen, documents: Sequence[Document]) -> WriteResult:
    """Add documents, or replace those with the same source; ApiError 403 where they may not be written."""
    sources = [each.source for each in documents]
    with _audited(services, seen, "add", sources):
        check_writable(services, seen)
        _check_sources(seen, sources)
        edited = await services.collections.writing[seen.name].write(Edit(add=documents))
    return await _written(services, seen, vars(edited.report), ("written", "unchanged"))


async def delete_document(services: Services, seen: Seen, source: str) -> WriteResult:
    """Delete a document; ApiError 404 for one that the caller does not see."""
    with _audited(services, seen, "delete", [source]):
        check_writable(services, seen)
        if seen.generation.row("document", source) is None:
            raise no_document(source)
        edited = await services.collections.writing[seen.name].write(Edit(delete=source))
        if not edited.deleted:
            raise no_document(source)
    left = {"documents": edited.report.documents, "passages": edited.report.passages}
    return await _written(services, seen, {"deleted": source, **left}, ("deleted",))


def check_writable(services: Services, seen: Seen) -> None:
    """ApiError 403 unless the server was started to be written to, and the caller may."""
    if not services.settings.writable:
        raise ApiError(403, "read_only", "this server does not change its index: start it with --writable")
    if "write" not in seen.access.scopes:
        raise ApiError(403, "not_allowed", "this key is not good for that: it lacks the scope write")


def no_document(source: str) -> ApiError:
    """404 for a document that is not there."""
    return ApiError(404, "no_such_document", f"the index has no document {source[:80]!r}", "source")


def _check_sources(seen: Seen, sources: Sequence[str]) -> None:
    """ApiError 403 for a document that the caller would not see, whether there is one or not."""
    for source in sources:
        if not all(each.holds(source) for each in seen.access.where):
            told = " and ".join(f"{each.key}{each.operator}{each.value}" for each in seen.access.where)
            raise ApiError(403, "not_yours", f"source {source[:80]!r}: this key writes only where {told}", "source")


@contextmanager
def _audited(services: Services, seen: Seen, action: str, sources: Sequence[str]) -> Iterator[None]:
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


async def _written(services: Services, seen: Seen, told: dict[str, Any], own: Sequence[str]) -> WriteResult:
    """The report for a caller; where it does not see all documents, what is its `own` of it, and what it sees now."""
    current = (await services.collections.seen(seen.access, seen.name)).generation
    if seen.access.where:
        held = {"documents": len(current.index.data.document_sources), "passages": len(current.index.data.passage_ids)}
        told = {**{name: told[name] for name in own}, **held}
    return WriteResult(index=current.identity, generation=current.number, report=told)
