"""Where the feedback on an index is kept: in a file of its folder or, where its rows are in a database, in that, for all servers of the index."""

from __future__ import annotations

from pathlib import Path

from graph.feedback.file import FeedbackFile
from graph.feedback.types import Feedback, FeedbackFull, entry_of, row_of
from graph.store.database import has_database


class FeedbackDatabase:
    """The entries of the index in `folder` in its database, at most `max_bytes` of them; methods and errors as those of `FeedbackFile`.

    Unavailable while the database is away.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        from graph.postgres.store.feedback import PostgresFeedback

        self._rows, self._max_bytes = PostgresFeedback(folder), max_bytes

    def add(self, entry: Feedback) -> None:
        if not self._rows.put(row_of(entry), self._max_bytes):
            raise FeedbackFull

    def all(self) -> list[Feedback]:
        return [entry_of(row) for row in self._rows.all()]

    def of_user(self, user: str) -> list[Feedback]:
        return [entry_of(row) for row in self._rows.of_user(user)]

    def delete_user(self, user: str) -> int:
        return self._rows.delete_user(user)


def open_feedback(folder: Path, max_bytes: int) -> FeedbackFile | FeedbackDatabase:
    """The feedback on the index in a folder, which takes entries until it has `max_bytes`."""
    return FeedbackDatabase(folder, max_bytes) if has_database(folder) else FeedbackFile(folder, max_bytes)


def read_feedback(folder: Path) -> list[Feedback]:
    """All that was said of the index in a folder, oldest first; UserError where it cannot be read."""
    return open_feedback(folder, 0).all()
