"""/v1/feedback: what readers say of answers, kept beside the collection where the server takes feedback."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import uuid4

from fastapi import APIRouter, Path
from pydantic import BaseModel

from graph.feedback.file import FeedbackFile
from graph.feedback.kept import FeedbackDatabase, open_feedback
from graph.feedback.types import Feedback, FeedbackFull, kind_of, said_to_json
from serve.http.feedback.feedback_request import NAME, FeedbackRequest
from serve.http.routes.collections import Seen
from serve.http.routes.services import SeenCollection, Services
from serve.http.shared.access import Access
from serve.http.shared.errors import ApiError

OwnerName = Annotated[
    str, Path(pattern=rf"^([\w.@+-]{{1,80}}/)?{NAME}$", description="`user`; KEY/USER for what the key KEY brought")
]


class Entry(BaseModel):
    """An entry as it is kept; `said` has the fields of its kind."""

    id: str
    at: str
    consent: bool
    kind: str
    question: str
    said: dict[str, Any]


class Entries(BaseModel):
    """Everything a user said, oldest first."""

    entries: list[Entry]


class Deleted(BaseModel):
    """How many entries were deleted."""

    deleted: int


def feedback_router(services: Services) -> APIRouter:
    """Routes over `services`; all answer 403 unless the server takes feedback."""
    router = APIRouter(prefix="/v1/feedback", tags=["feedback"])
    settings = services.settings

    def kept(seen: Seen) -> FeedbackFile | FeedbackDatabase:
        return open_feedback(services.collections.live[seen.name].folder, settings.max_feedback_mb << 20)

    @router.post("")
    def add(request: FeedbackRequest, seen: SeenCollection) -> Entry:
        """Keep what a reader says of an answer: a vote, a correction, the right passage, or which of two answers is better.

        `user` is a name that the client makes up, best at random; with it alone the entries can be read and deleted.
        """
        _check_taken(services)
        question = services.retriever.check_question(request.question)
        at = datetime.now(UTC).isoformat(timespec="seconds")
        owner = owner_of(seen.access, request.user)
        entry = Feedback(uuid4().hex, owner, at, request.consent, question, request.said())
        try:
            kept(seen).add(entry)
        except FeedbackFull:
            told = f"{settings.max_feedback_mb:,} MiB of feedback are kept already (max_feedback_mb)"
            raise ApiError(403, "feedback_full", told) from None
        return _shown(entry)

    @router.get("/{user:path}")
    def of_user(user: OwnerName, seen: SeenCollection) -> Entries:
        """Everything that a user said."""
        _check_taken(services)
        return Entries(entries=[_shown(each) for each in kept(seen).of_user(owner_of(seen.access, user))])

    @router.delete("/{user:path}")
    def delete(user: OwnerName, seen: SeenCollection) -> Deleted:
        """Delete everything that a user said; what was trained on it stays trained."""
        _check_taken(services)
        return Deleted(deleted=kept(seen).delete_user(owner_of(seen.access, user)))

    return router


def owner_of(access: Access, user: str) -> str:
    """The name under which entries are kept: that of the user, and of the key before it where the key sees a part of the documents.

    What one such key brought can quote what another may not see, so that knowing a user's name must not be enough.

    >>> from graph.index.filters import parse_condition
    >>> owner_of(Access("ada"), "reader-1"), owner_of(Access("ada", where=(parse_condition("team=sea"),)), "reader-1")
    ('reader-1', 'ada/reader-1')
    """
    return f"{access.key}/{user}" if access.where else user


def _shown(entry: Feedback) -> Entry:
    said = said_to_json(entry.said)
    return Entry(
        id=entry.id, at=entry.at, consent=entry.consent, kind=kind_of(entry.said), question=entry.question, said=said
    )


def _check_taken(services: Services) -> None:
    if not services.settings.feedback:
        raise ApiError(403, "no_feedback", "this server takes no feedback: start it with --feedback")
