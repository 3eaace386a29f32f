"""/v1/feedback: readers' feedback on answers (a vote, a correction, the right passage, a preference), stored with the collection.

Its author can read and delete it. All routes answer 403 unless the server accepts feedback."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import uuid4

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field, StringConstraints

from graph.feedback import (
    Better,
    Feedback,
    FeedbackDatabase,
    FeedbackFile,
    FeedbackFull,
    Rating,
    check_writable,
    content_of,
    kind_of,
    open_feedback,
)
from serve.http.encoding import StrictModel, Text
from serve.http.errors import ApiError
from serve.http.keys import Access
from serve.server.collections import CollectionView
from serve.server.retriever import MAX_K
from serve.server.services import RequestedCollection, Services

MAX_TEXT_CHARS = 20_000
USER_PATTERN = "[A-Za-z0-9_.-]{8,64}"
Name = Annotated[str, StringConstraints(pattern=f"^{USER_PATTERN}$")]
Id = Annotated[str, StringConstraints(pattern="^[0-9a-f]{32}$")]
OptionalText = Annotated[Text, StringConstraints(max_length=MAX_TEXT_CHARS)]
NonBlankText = Annotated[Text, StringConstraints(max_length=MAX_TEXT_CHARS, pattern=r"\S")]


class ShownAnswer(StrictModel):
    """An answer as shown to a reader."""

    model: Annotated[Text, StringConstraints(min_length=1, max_length=200)]
    text: NonBlankText = Field(description="`content` of the message")
    reasoning: OptionalText = Field("", description="`reasoning_content` of the message")
    context_ids: list[Id] = Field(default=[], max_length=2 * MAX_K, description="`retrieval.context_ids`")
    mode: Annotated[Text, StringConstraints(max_length=50)] = Field("", description="`retrieval.mode`")


class EntryFields(StrictModel):
    """The fields that every kind of feedback has."""

    user: Name = Field(description="author: a name of your choice; anyone who knows it can read and delete the entries")
    consent: bool = Field(description="whether the entry may become training data")
    question: NonBlankText = Field(description="the question that was searched for: `retrieval.question`")


class VoteRequest(EntryFields):
    """Whether an answer is good."""

    kind: Literal["vote"]
    answer: ShownAnswer
    rating: Rating


class CorrectionRequest(EntryFields):
    """The right answer, with its passages."""

    kind: Literal["correction"]
    answer: ShownAnswer
    corrected: NonBlankText
    reasoning: OptionalText = ""
    passage_ids: list[Id] = Field(default=[], max_length=MAX_K, description="passages that support the right answer")


class PassageRequest(EntryFields):
    """The passage that answers the question."""

    kind: Literal["passage"]
    passage_id: Id
    shown_ids: list[Id] = Field(default=[], max_length=MAX_K, description="all passages that were shown")


class PreferenceRequest(EntryFields):
    """Which of two answers is better."""

    kind: Literal["preference"]
    first: ShownAnswer
    second: ShownAnswer
    better: Better


FeedbackRequest = Annotated[
    VoteRequest | CorrectionRequest | PassageRequest | PreferenceRequest, Field(discriminator="kind")
]


OwnerName = Annotated[
    str,
    Path(
        pattern=rf"^([\w.@+-]{{1,80}}/)?{USER_PATTERN}$",
        description="`user` of the entries; with an unrestricted key, KEY/USER for entries sent with the restricted key named KEY",
    ),
]


class Entry(BaseModel):
    """A stored entry; `content` has the fields specific to its `kind`."""

    id: str
    at: str
    consent: bool
    kind: str
    question: str
    content: dict[str, Any]


class Entries(BaseModel):
    """All entries of a user, oldest first."""

    entries: list[Entry]


class Deleted(BaseModel):
    """How many entries were deleted."""

    deleted: int


def feedback_router(services: Services) -> APIRouter:
    """The router of /v1/feedback; UserError if the server accepts feedback but cannot write to the folder of an index."""
    router = APIRouter(prefix="/v1/feedback", tags=["feedback"])
    settings = services.settings
    if settings.feedback:
        for live in services.collections.live.values():
            check_writable(live.folder)

    def store_of(view: CollectionView) -> FeedbackFile | FeedbackDatabase:
        if not settings.feedback:
            raise ApiError(403, "no_feedback", "this server accepts no feedback: start it with --feedback")
        return open_feedback(services.collections.live[view.name].folder, settings.max_feedback_mb << 20)

    @router.post("")
    def add(request: FeedbackRequest, view: RequestedCollection) -> Entry:
        """Store feedback on an answer: a vote, a correction, the right passage, or which of two answers is better.

        `user` is a name that the client chooses, preferably at random; it is all that is needed to read and delete the entries.
        """
        store = store_of(view)
        question = services.retriever.check_question(request.question)
        at = datetime.now(UTC).isoformat(timespec="seconds")
        owner = owner_of(view.access, request.user)
        content = content_of(request.kind, request.model_dump(exclude={*EntryFields.model_fields, "kind"}))
        entry = Feedback(uuid4().hex, owner, at, request.consent, question, content)
        try:
            store.add(entry)
        except FeedbackFull:
            message = f"the stored feedback has reached the server's limit of {settings.max_feedback_mb:,} MiB (max_feedback_mb)"
            raise ApiError(403, "feedback_full", message) from None
        return _entry(entry)

    @router.get("/{user:path}")
    def of_user(user: OwnerName, view: RequestedCollection) -> Entries:
        """All entries of a user."""
        return Entries(entries=[_entry(item) for item in store_of(view).of_user(owner_of(view.access, user))])

    @router.delete("/{user:path}")
    def delete(user: OwnerName, view: RequestedCollection) -> Deleted:
        """Delete all entries of a user; models already trained on them do not change."""
        return Deleted(deleted=store_of(view).delete_user(owner_of(view.access, user)))

    return router


def owner_of(access: Access, user: str) -> str:
    """The name under which entries are stored: the user's name, preceded by the key's name if the key can read only a part of the documents.

    Such entries can quote documents that another key may not read, so a user's name must not be enough to read them.

    >>> from graph.index.filters import parse_condition
    >>> owner_of(Access("ada"), "reader-1"), owner_of(Access("ada", where=(parse_condition("team=sea"),)), "reader-1")
    ('reader-1', 'ada/reader-1')
    """
    return f"{access.key}/{user}" if access.where else user


def _entry(entry: Feedback) -> Entry:
    kind, content = kind_of(entry.content), asdict(entry.content)
    return Entry(id=entry.id, at=entry.at, consent=entry.consent, kind=kind, question=entry.question, content=content)
