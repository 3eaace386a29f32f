"""Metadata filters: conditions on documents, written `key=value` (also != < <= > >=), that restrict every step of a retrieval to the documents that meet them.

Keys are `source`, `title` and those of the documents' metadata; `*`, `?` and `[…]` in a value after = or != are wildcards, as in
file names (`[?]` is a question mark).
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from operator import ge, gt, le, lt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graph.errors import UserError, nearest
from graph.store.data import IndexData

_ORDERS = {"<": lt, "<=": le, ">": gt, ">=": ge}
_CONDITION = re.compile(r"^\s*([\w.-]+)\s*(!=|<=|>=|=|<|>)\s*(.*?)\s*$", re.DOTALL)


@dataclass(frozen=True)
class Condition:
    """One condition on a document: its `key` compared by `operator` with `value`."""

    key: str
    operator: str
    value: str

    def holds(self, value: object) -> bool:
        """Whether a document's value meets the condition; numbers are compared as numbers, other values as text, ignoring case.

        A missing value meets only !=. A list meets = if one of its values does, and != if none of them equals the value; it never meets another operator.
        """
        if value is None:
            return self.operator == "!="
        if isinstance(value, list):
            some = any(Condition(self.key, "=", self.value).holds(each) for each in value)
            return self.operator in ("=", "!=") and some == (self.operator == "=")
        text = json.dumps(value) if isinstance(value, bool) else str(value)
        if self.operator in ("=", "!="):
            return _equal(text, self.value) == (self.operator == "=")
        return bool(_ORDERS[self.operator](*_comparable(text, self.value)))


def parse_condition(text: str) -> Condition:
    """Parse a condition as a user writes it; UserError with the syntax when it is invalid.

    >>> parse_condition("year >= 1990")
    Condition(key='year', operator='>=', value='1990')
    """
    match = _CONDITION.match(text)
    if match is None or not match[3]:
        expected = "key=value, or != < <= > >= instead of ="
        raise UserError(f"filter {text!r}", expected, "for example --where 'year>=1990'")
    return Condition(match[1], match[2], match[3])


def allowed_documents(data: IndexData, conditions: Sequence[Condition]) -> NDArray[np.bool_]:
    """bool[U]: which documents meet all conditions. UserError for a key that no document has, and when no document meets them."""
    rows = [_values(data, row) for row in range(len(data.document_sources))]
    known = sorted({key for values in rows for key in values})
    for condition in conditions:
        if condition.key not in known:
            near = nearest(condition.key, known)
            expected = f"did you mean {near!r}?" if near else "a key that some document has"
            found = f"filter on {condition.key!r}: no document has it"
            raise UserError(found, expected, f"known keys: {', '.join(known)}")
    allowed_U = _rows_meeting(rows, conditions)
    if not allowed_U.any():
        text = " and ".join(f"{each.key}{each.operator}{each.value}" for each in conditions)
        raise UserError(f"filter {text}: none of {len(rows):,} documents meets it", "at least one", "loosen the filter")
    return allowed_U


def documents_meeting(data: IndexData, conditions: Sequence[Condition]) -> NDArray[np.bool_]:
    """bool[U]: which documents meet all conditions, without checking the keys."""
    return _rows_meeting((_values(data, row) for row in range(len(data.document_sources))), conditions)


def _rows_meeting(rows: Iterable[Mapping[str, Any]], conditions: Sequence[Condition]) -> NDArray[np.bool_]:
    return np.array([all(each.holds(values.get(each.key)) for each in conditions) for values in rows], bool)


def _values(data: IndexData, row: int) -> dict[str, Any]:
    metadata: dict[str, Any] = json.loads(data.document_metadata[row])
    return {**metadata, "source": data.document_sources[row], "title": data.document_titles[row]}


def _equal(text: str, pattern: str) -> bool:
    left, right = _comparable(text, pattern)
    return bool(left == right) or fnmatchcase(text.casefold(), pattern.casefold())


def _comparable(left: str, right: str) -> tuple[Any, Any]:
    try:
        return float(left), float(right)
    except ValueError:
        return left.casefold(), right.casefold()
