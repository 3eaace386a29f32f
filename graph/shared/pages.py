"""On which page a place of a document's text stands."""

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

PAGE_STARTS = "page_starts"
"""The key of a document's metadata that holds the place in its text at which page 1, 2, … begins."""


def page_at(metadata: Mapping[str, Any], place: int) -> int | None:
    """The page that a character of the text stands on, counted from 1; None for a document without pages.

    >>> page_at({"page_starts": [0, 7, 7, 20]}, 9), page_at({}, 9)
    (3, None)
    """
    starts = metadata.get(PAGE_STARTS)
    if not isinstance(starts, list) or not starts or not all(isinstance(start, int) for start in starts):
        return None
    return max(1, bisect_right(starts, place))
