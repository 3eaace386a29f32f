"""Derived arrays on disk: one folder per generation, and a manifest with checksums, written last and renamed into place.

A reader opens only files that the manifest names, so a concurrent build never disturbs it. A folder of arrays is named after its contents: an
index with other contents has no folder of that name, so an index copied over this one does not change files that a reader has opened. The
folder does not contain vectors, only their rows in the segments (graph/store/vectors.py).
"""

import json
import shutil
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from graph.errors import UserError
from graph.shared.ids import content_id, has_sum, quick_sum
from graph.shared.jsonl import write_text
from graph.store.ann import Ann, open_ann
from graph.store.columns.column_files import MOVED, MovedColumn, MovedFiles, load_column, save_column, save_moved
from graph.store.columns.moved import AssembledWhenRead, Block, assembled
from graph.store.columns.strings import Strings
from graph.store.manifest import FORMAT, MANIFEST, Base, Manifest, files_in, names_in, read_manifest, sizes
from graph.store.vector_files import open_vectors, save_vectors, with_ann
from graph.store.vectors import SEGMENT_FOLDER as SEGMENTS
from graph.store.vectors import Vectors

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
    `facts` go into the manifest. `merge_factor`, `ann_rows` and `compact` are those of graph/store/vector_files.py.
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
            segments[field.name] = {name: (folder / SEGMENTS / name).stat().st_size for name in names}
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
    """Make a manifest from `save_arrays` the current one; remove all older generations except the one that was current."""
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
    for segment in (folder / SEGMENTS).glob("*"):
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
        name: open_ann(folder / SEGMENTS / facts["file"], facts["probes"], facts["recall"])
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
