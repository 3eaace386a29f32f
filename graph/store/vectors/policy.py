"""Which segments are written again, and which have an ANN index: few of any order of size, and few vectors to compare one by one.

Legend: S segments.
"""

from collections.abc import Collection, Sequence


def segments_to_merge(
    rows_S: Sequence[int], live_S: Sequence[int], new: Collection[int], merge_factor: int
) -> set[int]:
    """Which segments are written again: those of which more than half is gone, and smaller ones than `merge_factor` times what is
    written, when they would be that many with it. So there are few: some `merge_factor` of each order of size.

    >>> segments_to_merge([100, 1, 1, 1], [100, 1, 1, 1], {3}, 3), segments_to_merge([100, 8], [49, 8], set(), 3)
    ({1, 2}, {0})
    """
    again = {
        place for place, (rows, live) in enumerate(zip(rows_S, live_S, strict=True)) if 2 * live < rows or not live
    }
    again -= set(new)
    while written := sum(live_S[place] for place in again.union(new)):
        near = {place for place, rows in enumerate(rows_S) if rows < merge_factor * written} - again - set(new)
        if len(near) + 1 < merge_factor:
            break
        again |= near
    return again


def segments_to_index(rows_S: Sequence[int], live: int, ann_rows: int, merge_factor: int) -> set[int]:
    """Which segments have an ANN index: of at least `ann_rows` vectors in use all but segments of less than `ann_rows / merge_factor`.

    There are few of those (`segments_to_merge`), so no more than about `ann_rows` vectors are compared one by one.

    >>> segments_to_index([90, 20, 1], 100, 100, 8), segments_to_index([90, 20, 1], 99, 100, 8)
    ({0, 1}, set())
    """
    return {place for place, rows in enumerate(rows_S) if live >= ann_rows and rows * merge_factor >= ann_rows and rows}
