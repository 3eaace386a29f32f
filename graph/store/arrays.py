"""Derived arrays on disk: one folder per generation, and a manifest with checksums, written last and renamed into place.

A reader opens only files that the manifest names, so a concurrent build never disturbs it. A folder of arrays is named after its contents: an
index with other contents has no folder of that name, so an index copied over this one does not change files that a reader has opened. The
folder does not contain vectors, only their rows in the segments (graph/store/vectors.py).

New vectors go into a new segment, and small segments are merged. `segments_to_merge` and `segments_to_index` decide which segments are rewritten and which
get an ANN index, so that there are few segments of each order of magnitude and few vectors outside ANN indexes.
Legend: N rows of a matrix, R rows of its concatenated segments, S segments, K segments that are not rewritten.
"""

import json
import shutil
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import numpy as np

from graph.errors import UserError
from graph.shared.ids import content_id, has_sum, quick_sum
from graph.shared.jsonl import write_text
from graph.store.ann import Ann, build_ann, open_ann
from graph.store.columns.column_files import MOVED, MovedColumn, MovedFiles, load_column, save_column, save_moved
from graph.store.columns.moved import AssembledWhenRead, Block, Numbers, assembled, changed_numbers, renumber_from
from graph.store.columns.strings import Strings
from graph.store.manifest import FORMAT, MANIFEST, Base, Manifest, files_in, names_in, read_manifest, sizes
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


ROWS = ".rows"
"""Suffix of a field of vectors: only their rows in the segments are stored."""
MAY_BE_MOVED: tuple[Any, ...] = (Strings, Block)
"""Types of fields that stay unassembled, as a base and its changes."""
D = TypeVar("D", bound=AssembledWhenRead)


def save_arrays(
    folder: Path,
    generation: int,
    data: Any,
    facts: Mapping[str, Any],
    merge_factor: int,
    ann_rows: int,
    compact: bool = False,
    base: Base | None = None,
) -> str:
    """Write every field of the dataclass `data` under `folder`; return the manifest, which `publish` makes current.

    Fields are arrays (.npy), Strings (two .npy), CSR matrices (four .npy) or Vectors (their rows in the segments, .rows.npy). With a `base`,
    fields that are moved columns of that base are written as changes to it (.moved.npz, graph/store/columns/column_files.py), all others in full.
    `facts` go into the manifest. `merge_factor`, `ann_rows` and `compact` are those of `save_vectors` and `with_ann`.
    """
    scratch = folder / f"arrays-{generation:06d}.partial"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    segments: dict[str, dict[str, int]] = {}
    ann: dict[str, dict[str, Any]] = {}
    in_base = set() if base is None else set(map(_field_of, base.files))
    for field in fields(data):
        value = getattr(data, field.name)
        if isinstance(value, Vectors):
            value = save_vectors(folder, field.name, value, merge_factor, compact)
            value = with_ann(folder, value, ann_rows, merge_factor, compact)
            names = [segment.name for segment in value.segments]
            segments[field.name] = {name: (folder / SEGMENT_FOLDER / name).stat().st_size for name in names}
            ann |= {segment.name: _ann_facts(segment.ann) for segment in value.segments if segment.ann is not None}
        column = value.row_N if isinstance(value, Vectors) else value
        if field.name in in_base and isinstance(column, MovedColumn):
            save_moved(scratch / (field.name + MOVED), column)
        else:
            save_column(scratch, field.name + (ROWS if isinstance(value, Vectors) else ""), assembled(column))
    written = sorted(scratch.iterdir())
    files = {file.name: {"bytes": file.stat().st_size, "checksum": quick_sum(file)} for file in written}
    entries = {"files": files, "segments": segments, "ann": ann}
    if base is not None:
        moved = {_field_of(file) for file in files if file.endswith(MOVED)}
        in_use = {file: entry for file, entry in base.files.items() if _field_of(file) in moved}
        entries["base"] = asdict(replace(base, files=in_use))
    name = f"arrays-{generation:06d}-{content_id(json.dumps([files, segments]))[:8]}"
    shutil.rmtree(folder / name, ignore_errors=True)
    scratch.rename(folder / name)
    return json.dumps({"format": FORMAT, "generation": generation, **facts, "arrays": name, **entries}, indent=1)


def publish(folder: Path, manifest: str) -> None:
    """Make `manifest`, a result of `save_arrays`, the current one; remove all older generations except the one that was current before."""
    replaced: list[str] = []
    with suppress(UserError):
        replaced = names_in(read_manifest(folder))
    write_text(folder / MANIFEST, f"{manifest}\n{content_id(manifest)}")
    drop_others(folder, [*names_in(read_manifest(folder)), *replaced])


def drop_others(folder: Path, in_use: Collection[str]) -> None:
    """Remove all folders of arrays, segments and ANN indexes except those in use."""
    for old in folder.glob("arrays-*"):
        if old.name not in in_use:
            shutil.rmtree(old)
    for segment in (folder / SEGMENT_FOLDER).glob("*"):
        if segment.name not in in_use:
            segment.unlink()


def load_arrays(folder: Path, kind: type[D], manifest: Manifest | None = None, moved: bool = False) -> D:
    """The arrays of a manifest (None: the current one) as `kind`, memory-mapped. Moved columns are assembled when first read (the rows of
    vectors immediately); if `moved`, they stay unassembled, as texts and fields of type `Block` always do.

    UserError if a file is missing or has the wrong size. `check_arrays` checks the bytes.
    """
    manifest = manifest or read_manifest(folder)
    check_files(folder, manifest)
    hints = get_type_hints(kind)
    files = MovedFiles()
    values = {name: _load(folder, manifest, files, name, hints[name]) for name in hints}
    ann = {
        name: open_ann(folder / SEGMENT_FOLDER / facts["file"], facts["probes"], facts["recall"])
        for name, facts in manifest.ann.items()
    }
    for name, segments in manifest.segments.items():
        rows = values[name] if moved else assembled(values[name])
        values[name] = open_vectors(folder, list(segments), rows, ann)
    return kind(**values) if moved else _assemble_when_read(kind, values, hints)


def _assemble_when_read(kind: type[D], values: Mapping[str, Any], hints: Mapping[str, Any]) -> D:
    """The columns as a `kind` that assembles moved ones when they are first read, except fields of the types in MAY_BE_MOVED."""
    to_assemble = [name for name in values if hints[name] not in MAY_BE_MOVED]
    moved = {name: values[name] for name in to_assemble if isinstance(values[name], MovedColumn)}
    data = object.__new__(kind)
    vars(data).update({name: value for name, value in values.items() if name not in moved}, _moved=moved)
    return data


def _load(folder: Path, manifest: Manifest, moved: MovedFiles, name: str, kind: Any) -> Any:
    """One field; for Vectors, their rows."""
    if manifest.base is None or name + MOVED not in manifest.files:
        return load_field(folder / manifest.arrays, name, kind)
    base = load_field(folder / manifest.base.arrays, name, kind)
    return moved.load(folder / manifest.arrays / (name + MOVED), base)


def load_field(folder: Path, name: str, kind: Any) -> Any:
    """One field of a folder of arrays, memory-mapped where possible; for Vectors, their rows."""
    return load_column(folder, name + (ROWS if kind is Vectors else ""), kind)


def check_files(folder: Path, manifest: Manifest) -> None:
    """UserError if a file of a generation is missing or has the wrong size."""
    for file, expected in sizes(folder, manifest).items():
        size = file.stat().st_size if file.exists() else 0
        if size != expected:
            raise UserError(f"{file}: {size:,} bytes", f"{expected:,} bytes", f"run: modegraph repair {folder}")


def check_arrays(folder: Path, manifest: Manifest, skipped_folder: str = "") -> None:
    """UserError if the contents of a file of the arrays, or of their base, have changed; segments, and files in `skipped_folder`, are not checked."""
    for file, facts in files_in(folder, manifest).items():
        if file.parent.name != skipped_folder and not has_sum(file, facts["checksum"]):
            found = f"{file}: its contents have changed"
            raise UserError(found, "the file as it was written", f"run: modegraph repair {folder}")


def _field_of(file: str) -> str:
    return file.partition(".")[0]


def _ann_facts(ann: Ann) -> dict[str, Any]:
    return {"file": ann.file.name, "bytes": ann.file.stat().st_size, "probes": ann.probes, "recall": ann.recall}
