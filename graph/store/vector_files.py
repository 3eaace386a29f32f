"""A matrix of vectors into its files, and back: what is in no segment yet is written into a new one, small ones are merged.

At the end, the policy: which segments are written again and which have an ANN index, so that there are few of any order of size, and few
vectors to compare one by one.
Legend: N rows of a matrix, R rows of its segments one after another, S segments, K segments that are kept."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from graph.store.ann import Ann, build_ann
from graph.store.columns.moved import Numbers, appended, changed_numbers, whole_numbers
from graph.store.vectors import SEGMENT_FOLDER, Vectors, check_segment, open_segment, write_segment
from graph.types import Ints


def save_vectors(folder: Path, field: str, vectors: Vectors, merge_factor: int, compact: bool = False) -> Vectors:
    """The same vectors with all of them in files: what is in none yet is written into a new segment, in order.

    With it goes what `segments_to_merge` says, a fresh segment too; if `compact`, everything is in one segment, in order. UserError when a
    segment that would be written again is damaged.
    """
    rows_S = [len(segment.ids_R) for segment in vectors.segments]
    live_S = vectors.live_S.tolist()
    new = {place for place, segment in enumerate(vectors.segments) if not segment.name or segment.fresh}
    in_files = all(segment.name for segment in vectors.segments)
    if compact:
        again = set() if vectors.whole and in_files else set(range(len(rows_S)))
    else:
        again = segments_to_merge(rows_S, live_S, new, merge_factor)
        again |= new if again or not in_files else set()
    kept = [place for place in range(len(rows_S)) if place not in again]
    segments = [vectors.segments[place] for place in kept]
    end = sum(rows_S[place] for place in kept)
    if again == new and kept == list(range(len(kept))):
        rows_R, row_N = appended(vectors.row_N, end)
    else:
        rows_R, row_N = _moved_together(vectors, kept)
    if len(rows_R) or not kept:
        for place in again - new:
            if live_S[place]:
                check_segment(folder, vectors.segments[place].name)
        segments.append(write_segment(folder, field, vectors.ids(rows_R), lambda part: vectors.held(rows_R[part])))
    return Vectors(tuple(segments), row_N)


def _moved_together(vectors: Vectors, kept: Sequence[int]) -> tuple[Ints, Numbers]:
    """The rows that are in none of the segments that are kept, and where each row is when those, then these, lie end to end."""
    row_N, kept_K = np.array(whole_numbers(vectors.row_N)), np.array(kept, np.int64)
    moved_S, segment_N = np.zeros(len(vectors.segments), np.int64), vectors.segment_of(row_N)
    ends = np.cumsum([0, *(len(vectors.segments[place].ids_R) for place in kept)])
    moved_S[kept_K] = ends[:-1] - vectors.starts[kept_K]
    row_N += moved_S[segment_N]
    rows_R = np.flatnonzero(~np.isin(segment_N, kept_K))
    row_N[rows_R] = ends[-1] + np.arange(len(rows_R))
    return rows_R, changed_numbers(vectors.row_N, row_N)


def with_ann(folder: Path, vectors: Vectors, ann_rows: int, merge_factor: int, compact: bool = False) -> Vectors:
    """The same vectors, with an ANN index for each segment that is to have one; if `compact`, for no other."""
    due = segments_to_index([len(segment.ids_R) for segment in vectors.segments], len(vectors), ann_rows, merge_factor)
    segments = list(vectors.segments)
    for place, segment in enumerate(segments):
        if place in due and segment.ann is None:
            segments[place] = replace(segment, ann=build_ann(folder / SEGMENT_FOLDER, segment.name, segment.vectors_RD))
        elif compact and place not in due:
            segments[place] = replace(segment, ann=None)
    return Vectors(tuple(segments), vectors.row_N)


def has_ann_due(vectors: Vectors, ann_rows: int, merge_factor: int) -> bool:
    """Whether just the segments that are to have an ANN index have one."""
    due = segments_to_index([len(segment.ids_R) for segment in vectors.segments], len(vectors), ann_rows, merge_factor)
    return due == {place for place, segment in enumerate(vectors.segments) if segment.ann is not None}


def open_vectors(folder: Path, names: Sequence[str], row_N: Ints, ann: Mapping[str, Ann] | None = None) -> Vectors:
    """Vectors in the files of an index, memory-mapped; `ann` has the ANN indexes of segments by name."""
    segments = (open_segment(folder / SEGMENT_FOLDER / name) for name in names)
    return Vectors(tuple(replace(segment, ann=(ann or {}).get(segment.name)) for segment in segments), row_N)


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
