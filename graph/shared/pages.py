"""Page numbers of offsets in a document's text."""

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

PAGE_STARTS = "page_starts"
"""The metadata key for the offsets in the text at which pages 1, 2, … begin."""


def page_at(metadata: Mapping[str, Any], offset: int) -> int | None:
    """The page of the character at `offset`, counted from 1; None for a document without pages.

    >>> page_at({"page_starts": [0, 7, 7, 20]}, 9), page_at({}, 9)
    (3, None)
    """
    starts = metadata.get(PAGE_STARTS)
    if not isinstance(starts, list) or not starts or not all(isinstance(start, int) for start in starts):
        return None
    return max(1, bisect_right(starts, offset))
