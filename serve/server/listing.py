"""The documents of one generation as a list for readers: size, date, number of unread passages and preview, in the requested order.

Legend: U documents, P passages."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from graph.store.data import IndexData
from graph.types import Ints

Order = Literal["source", "title", "date", "size"]
DATE_KEYS = ("date", "updated", "modified", "published", "created", "year")
"""Metadata keys that may contain a document's date; the first whose value begins with a year is used."""
PREVIEW_CHARS = 400
_DATE = re.compile(r"[12]\d{3}(?!\d)(?:-\d\d(?:-\d\d)?)?")


def date_of(metadata: Mapping[str, Any]) -> str | None:
    """The date in a document's metadata, precise to the day, month or year; None if there is none.

    >>> date_of({"date": "2024-03-01T10:00:00+00:00"}), date_of({"year": 1911}), date_of({"date": "soon"})
    ('2024-03-01', '1911', None)
    """
    matches = (_DATE.match(str(metadata[key])) for key in DATE_KEYS if key in metadata)
    return next((match[0] for match in matches if match), None)


@dataclass(frozen=True)
class Listing:
    """The documents in `data`, by row. A document's size is counted up to the end of its last passage; an unread passage has no proposition."""

    data: IndexData
    _rows: dict[tuple[Order, bool], Ints] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def first_passage_U(self) -> Ints:
        """The row of each document's first passage, followed by the number of passages: int64[U + 1]."""
        rows_U = np.arange(len(self.data.document_sources) + 1)
        return np.searchsorted(self.data.passage_document_P, rows_U).astype(np.int64)

    @cached_property
    def characters_U(self) -> Ints:
        """The number of characters of each document: int64[U]."""
        ends_P = np.append(np.asarray(self.data.passage_end_P), 0)
        return np.where(np.diff(self.first_passage_U) > 0, ends_P[self.first_passage_U[1:] - 1], 0)

    @cached_property
    def unread_U(self) -> Ints:
        """The number of each document's passages that have no proposition: int64[U]."""
        unread_P = np.diff(self.data.passage_proposition_PN.indptr) == 0
        before_P = np.concatenate([[0], np.cumsum(unread_P)])
        return np.diff(before_P[self.first_passage_U])

    def rows(self, order: Order, descending: bool) -> Ints:
        """The documents' rows in the given order, ties by source; documents without a date come last in either direction: int64[U]."""
        if (order, descending) not in self._rows:
            self._rows[order, descending] = self._sorted(order, descending)
        return self._rows[order, descending]

    def _sorted(self, order: Order, descending: bool) -> Ints:
        data = self.data
        if order == "source":
            rows_U = np.arange(len(data.document_sources))
            return rows_U[::-1] if descending else rows_U
        keys: list[Any]
        if order == "size":
            keys = self.characters_U.tolist()
        elif order == "date":
            keys = [date_of(json.loads(text)) for text in data.document_metadata]
        else:
            names = zip(data.document_titles, data.document_sources, strict=True)
            keys = [(title or source).casefold() for title, source in names]
        known = [row for row, key in enumerate(keys) if key is not None]
        known.sort(key=keys.__getitem__, reverse=descending)
        return np.array(known + [row for row, key in enumerate(keys) if key is None], np.int64)

    def preview(self, row: int) -> str:
        """The beginning of a document's first passage; "" if it has none."""
        first, end = self.first_passage_U[row : row + 2].tolist()
        return self.data.passage_texts[first][:PREVIEW_CHARS] if end > first else ""
