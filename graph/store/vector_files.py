"""Writes a matrix of vectors to files and opens it: new vectors go into a new segment, and small segments are merged.

The policy is at the end: which segments are rewritten and which get an ANN index, so that there are few segments of each order of magnitude
and few vectors outside ANN indexes.
Legend: N rows of a matrix, R rows of its concatenated segments, S segments, K segments that are not rewritten."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from graph.store.ann import Ann, build_ann
from graph.store.columns.moved import Numbers, assembled, changed_numbers, renumber_from
from graph.store.vectors import SEGMENT_FOLDER, Vectors, check_segment, open_segment, write_segment
from graph.types import Ints


def save_vectors(folder: Path, field: str, vectors: Vectors, merge_factor: int, compact: bool = False) -> Vectors:
    """The same vectors, all of them in files: those in memory are written to a new segment, in row order.

    The new segment, if there is one, also gets the vectors of `segments_to_merge` and of fresh segments; if `compact`, all vectors go into one
    segment, in row order. UserError when a segment to be rewritten is damaged.
    """
    rows_S = [len(segment.ids_R) for segment in vectors.segments]
    live_S = vectors.live_S.tolist()
    new = {place for place, segment in enumerate(vectors.segments) if not segment.name or segment.fresh}
    in_files = all(segment.name for segment in vectors.segments)
    if compact:
        to_rewrite = set() if vectors.is_one_segment and in_files else set(range(len(rows_S)))
    else:
        to_rewrite = segments_to_merge(rows_S, live_S, new, merge_factor)
        to_rewrite |= new if to_rewrite or not in_files else set()
    unchanged = [place for place in range(len(rows_S)) if place not in to_rewrite]
    segments = [vectors.segments[place] for place in unchanged]
    end = sum(rows_S[place] for place in unchanged)
    if to_rewrite == new and unchanged == list(range(len(unchanged))):
        rows_R, row_N = renumber_from(vectors.row_N, end)
    else:
        rows_R, row_N = _renumbered(vectors, unchanged)
    if len(rows_R) or not unchanged:
        for place in to_rewrite - new:
            if live_S[place]:
                check_segment(folder, vectors.segments[place].name)
        segments.append(write_segment(folder, field, vectors.ids(rows_R), lambda part: vectors.stored(rows_R[part])))
    return Vectors(tuple(segments), row_N)


def _renumbered(vectors: Vectors, unchanged: Sequence[int]) -> tuple[Ints, Numbers]:
    """The rows to write (those in no unchanged segment), and the position of every row once the written rows follow the unchanged segments."""
    row_N, segment_K = np.array(assembled(vectors.row_N)), np.array(unchanged, np.int64)
    shift_S, segment_N = np.zeros(len(vectors.segments), np.int64), np.searchsorted(vectors.starts, row_N, "right") - 1
    ends = np.cumsum([0, *(len(vectors.segments[place].ids_R) for place in unchanged)])
    shift_S[segment_K] = ends[:-1] - vectors.starts[segment_K]
    row_N += shift_S[segment_N]
    rows_R = np.flatnonzero(~np.isin(segment_N, segment_K))
    row_N[rows_R] = ends[-1] + np.arange(len(rows_R))
    return rows_R, changed_numbers(vectors.row_N, row_N)


def with_ann(folder: Path, vectors: Vectors, ann_rows: int, merge_factor: int, compact: bool = False) -> Vectors:
    """The same vectors, with an ANN index for each segment of `segments_to_index`; if `compact`, no other segment has one."""
    due = segments_to_index([len(segment.ids_R) for segment in vectors.segments], len(vectors), ann_rows, merge_factor)
    segments = list(vectors.segments)
    for place, segment in enumerate(segments):
        if place in due and segment.ann is None:
            segments[place] = replace(segment, ann=build_ann(folder / SEGMENT_FOLDER, segment.name, segment.vectors_RD))
        elif compact and place not in due:
            segments[place] = replace(segment, ann=None)
    return Vectors(tuple(segments), vectors.row_N)


def ann_is_current(vectors: Vectors, ann_rows: int, merge_factor: int) -> bool:
    """Whether exactly the segments of `segments_to_index` have an ANN index."""
    due = segments_to_index([len(segment.ids_R) for segment in vectors.segments], len(vectors), ann_rows, merge_factor)
    return due == {place for place, segment in enumerate(vectors.segments) if segment.ann is not None}


def open_vectors(folder: Path, names: Sequence[str], row_N: Ints, ann: Mapping[str, Ann] | None = None) -> Vectors:
    """The vectors in segment files, memory-mapped; `ann` maps names of segments to their ANN indexes."""
    segments = (open_segment(folder / SEGMENT_FOLDER / name) for name in names)
    return Vectors(tuple(replace(segment, ann=(ann or {}).get(segment.name)) for segment in segments), row_N)


def segments_to_merge(
    rows_S: Sequence[int], live_S: Sequence[int], new: Collection[int], merge_factor: int
) -> set[int]:
    """The segments to rewrite together with the `new` ones, so that at most about `merge_factor` segments of each order of magnitude remain.

    These are the segments with more than half of their rows deleted, and those without rows. Segments of fewer than `merge_factor` times the rows to
    write are added if there are at least `merge_factor` − 1 of them, until no more qualify.

    >>> segments_to_merge([100, 1, 1, 1], [100, 1, 1, 1], {3}, 3), segments_to_merge([100, 8], [49, 8], set(), 3)
    ({1, 2}, {0})
    """
    others = [place for place in range(len(rows_S)) if place not in new]
    to_rewrite = {place for place in others if 2 * live_S[place] < rows_S[place] or not live_S[place]}
    while rows_to_write := sum(live_S[place] for place in to_rewrite.union(new)):
        small = {place for place in others if rows_S[place] < merge_factor * rows_to_write} - to_rewrite
        if len(small) + 1 < merge_factor:
            break
        to_rewrite |= small
    return to_rewrite


def segments_to_index(rows_S: Sequence[int], live: int, ann_rows: int, merge_factor: int) -> set[int]:
    """The segments that get an ANN index: if at least `ann_rows` vectors are in use, those of `ann_rows / merge_factor` rows or more.

    Smaller segments are few (`segments_to_merge`), so exact search covers at most about `ann_rows` vectors.

    >>> segments_to_index([90, 20, 1], 100, 100, 8), segments_to_index([90, 20, 1], 99, 100, 8)
    ({0, 1}, set())
    """
    return {place for place, rows in enumerate(rows_S) if live >= ann_rows and rows * merge_factor >= ann_rows and rows}
