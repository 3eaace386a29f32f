"""Metadata filters: conditions on documents, written `key=value` (also != < <= > >=), that a whole retrieval then obeys.

Keys are `source`, `title` and what the documents' own metadata holds; a value may have `*` as in file names.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graph.errors import UserError, nearest
from graph.store.data import IndexData

_CONDITION = re.compile(r"^\s*([\w.-]+)\s*(!=|<=|>=|=|<|>)\s*(.*?)\s*$", re.DOTALL)


@dataclass(frozen=True)
class Condition:
    """One condition on a document: its `key` compared by `operator` with `value`."""

    key: str
    operator: str
    value: str

    def holds(self, found: object) -> bool:
        """Whether a document's value meets it; numbers compare as numbers, all else as text. No value meets only !=."""
        if found is None:
            return self.operator == "!="
        if isinstance(found, list):
            some = any(Condition(self.key, "=", self.value).holds(each) for each in found)
            return some if self.operator == "=" else not some if self.operator == "!=" else False
        text = json.dumps(found) if isinstance(found, bool) else str(found)
        if self.operator in ("=", "!="):
            return (_equal(text, self.value)) == (self.operator == "=")
        ours, theirs = _comparable(text, self.value)
        return bool(ours < theirs if "<" in self.operator else ours > theirs) or (
            "=" in self.operator and bool(ours == theirs)
        )


def parse_condition(text: str) -> Condition:
    """A condition as a user writes it; UserError with the form when it is none.

    >>> parse_condition("year >= 1990")
    Condition(key='year', operator='>=', value='1990')
    """
    match = _CONDITION.match(text)
    if match is None or not match[3]:
        raise UserError(f"filter {text!r}", "key=value, or with != < <= > >=", "for example --where 'year>=1990'")
    return Condition(match[1], match[2], match[3])


def allowed_documents(data: IndexData, conditions: Sequence[Condition]) -> NDArray[np.bool_]:
    """bool[U]: which documents meet all conditions. UserError for a key that no document has, and when none meets them."""
    rows = [_values(data, row) for row in range(len(data.document_sources))]
    known = sorted({key for values in rows for key in values})
    for condition in conditions:
        if condition.key not in known:
            near = nearest(condition.key, known)
            raise UserError(
                f"filter on {condition.key!r}: no document has it",
                f"did you mean {near!r}?" if near else "a key of some document",
                f"known keys: {', '.join(known)}",
            )
    allowed_U = documents_meeting(data, conditions)
    if not allowed_U.any():
        told = " and ".join(f"{each.key}{each.operator}{each.value}" for each in conditions)
        raise UserError(f"filter {told}: no document of {len(rows):,} meets it", "one at least", "loosen the filter")
    return allowed_U


def documents_meeting(data: IndexData, conditions: Sequence[Condition]) -> NDArray[np.bool_]:
    """bool[U]: which documents meet all conditions, whatever keys there are."""
    rows = (_values(data, row) for row in range(len(data.document_sources)))
    return np.array([all(each.holds(values.get(each.key)) for each in conditions) for values in rows], bool)


def _values(data: IndexData, row: int) -> dict[str, Any]:
    own: dict[str, Any] = json.loads(data.document_metadata[row])
    return {**own, "source": data.document_sources[row], "title": data.document_titles[row]}


def _equal(text: str, pattern: str) -> bool:
    ours, theirs = _comparable(text, pattern)
    return bool(ours == theirs) or fnmatchcase(text.casefold(), pattern.casefold())


def _comparable(ours: str, theirs: str) -> tuple[Any, Any]:
    try:
        return float(ours), float(theirs)
    except ValueError:
        return ours.casefold(), theirs.casefold()
