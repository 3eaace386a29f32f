"""Derived arrays on disk: one folder a generation, a manifest with checksums written last and renamed into place.

A reader opens what the manifest names and nothing else, so a build beside it never disturbs it. A folder of arrays is named after its
contents: no other index has files of those names, so that one copied over it leaves open what a reader has opened. Vectors are not in
it, only which rows of the segments they are (graph/store/vectors).
"""

import json
import shutil
from collections.abc import Collection, Mapping
from dataclasses import asdict, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar, cast, get_type_hints

from graph.errors import UserError
from graph.shared.ids import content_id, has_sum, quick_sum
from graph.store.ann import Ann, open_ann
from graph.store.columns.column_files import (
    MOVED,
    MovedColumn,
    MovedFiles,
    load_column,
    save_column,
    save_moved,
)
from graph.store.columns.moved import Block, whole
from graph.store.columns.strings import Strings
from graph.store.manifest import FORMAT, MANIFEST, Base, Manifest, files_in, names_in, read_manifest, sizes
from graph.store.vector_files import open_vectors, save_vectors, with_ann
from graph.store.vectors import SEGMENT_FOLDER as SEGMENTS
from graph.store.vectors import Vectors

ROWS = ".rows"
"""After the name of a field of vectors, whose rows of the segments are kept."""
MAY_BE_MOVED: tuple[Any, ...] = (Strings, Block)
"""Kinds of fields that a reader takes with what has changed beside them."""
D = TypeVar("D")


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
    """Write every field of the dataclass `data` under `folder`; returns the manifest, which `publish` makes the current generation.

    Fields are arrays (.npy), Strings (two .npy), CSR matrices (four .npy) or Vectors (the rows that they are of segments, .rows.npy). Of those
    that have moved only what has changed is written if their `base` is given (.moved.npz, graph/store/columns/column_files.py), else all.
    `facts` go into the manifest. `merge_factor`, `ann_rows` and `compact` are those of graph/store/vector_files.py.
    """
    scratch = folder / f"arrays-{generation:06d}.partial"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    segments: dict[str, dict[str, int]] = {}
    ann: dict[str, dict[str, Any]] = {}
    known = set() if base is None else set(map(_field_of, base.files))
    for field in fields(data):
        value = getattr(data, field.name)
        if isinstance(value, Vectors):
            value = save_vectors(folder, field.name, value, merge_factor, compact)
            value = with_ann(folder, value, ann_rows, merge_factor, compact)
            segments[field.name] = {
                segment.name: (folder / SEGMENTS / segment.name).stat().st_size for segment in value.segments
            }
            ann |= {segment.name: _ann_facts(segment.ann) for segment in value.segments if segment.ann is not None}
        column = value.row_N if isinstance(value, Vectors) else value
        if field.name in known and isinstance(column, MovedColumn):
            save_moved(scratch / (field.name + MOVED), column)
        else:
            save_column(scratch, field.name + (ROWS if isinstance(value, Vectors) else ""), whole(column))
    files = {
        file.name: {"bytes": file.stat().st_size, "checksum": quick_sum(file)} for file in sorted(scratch.iterdir())
    }
    named = {"files": files, "segments": segments, "ann": ann}
    if base is not None:
        moved = {_field_of(file) for file in files if file.endswith(MOVED)}
        in_use = {file: told for file, told in base.files.items() if _field_of(file) in moved}
        named["base"] = asdict(replace(base, files=in_use))
    name = f"arrays-{generation:06d}-{content_id(json.dumps([files, segments]))[:8]}"
    shutil.rmtree(folder / name, ignore_errors=True)
    scratch.rename(folder / name)
    return json.dumps({"format": FORMAT, "generation": generation, **facts, "arrays": name, **named}, indent=1)


def publish(folder: Path, saved: str) -> None:
    """Make a manifest that `save_arrays` returned the current one. Older generations but the one just replaced are removed."""
    replaced = _names_in_use(folder)
    partial = folder / (MANIFEST + ".partial")
    partial.write_text(f"{saved}\n{content_id(saved)}", encoding="utf-8")
    partial.replace(folder / MANIFEST)
    drop_others(folder, [*names_in(read_manifest(folder)), *replaced])


def drop_others(folder: Path, kept: Collection[str]) -> None:
    """Remove the folders of arrays and the segments that are not named."""
    for old in folder.glob("arrays-*"):
        if old.name not in kept:
            shutil.rmtree(old)
    for segment in (folder / SEGMENTS).glob("*"):
        if segment.name not in kept:
            segment.unlink()


def load_arrays(folder: Path, kind: type[D], manifest: Manifest | None = None, moved: bool = False) -> D:
    """The arrays of a manifest (None: the one that is there now) as `kind`, memory-mapped; what has changed since they were whole is put into
    them when they are asked for, or, if `moved`, stays beside them, as it does beside texts and fields of the kind `Block`.

    UserError naming the file when one is missing or cut short. Bytes are checked by `check_arrays`.
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
    for name, named in manifest.segments.items():
        rows = values[name] if moved else whole(values[name])
        values[name] = open_vectors(folder, list(named), rows, ann)
    return kind(**values) if moved else _assemble_when_read(kind, values, hints)


def _assemble_when_read(kind: type[D], values: Mapping[str, Any], hints: Mapping[str, Any]) -> D:
    """The same columns: one that has moved is put together when it is first asked for, as nobody asks for all of them."""
    moved = {
        name for name, value in values.items() if isinstance(value, MovedColumn) and hints[name] not in MAY_BE_MOVED
    }
    later = {name: cached_property(partial(_assemble, values[name])) for name in moved}
    data = cast(D, object.__new__(type(kind.__name__, (kind,), later)))
    vars(data).update({name: value for name, value in values.items() if name not in moved})
    return data


def _assemble(column: Any, _: Any) -> Any:
    return whole(column)


def _load(folder: Path, manifest: Manifest, moved: MovedFiles, name: str, kind: Any) -> Any:
    """One field; of Vectors, their rows."""
    if manifest.base is None or name + MOVED not in manifest.files:
        return load_field(folder / manifest.arrays, name, kind)
    base = load_field(folder / manifest.base.arrays, name, kind)
    return moved.load(folder / manifest.arrays / (name + MOVED), base)


def load_field(folder: Path, name: str, kind: Any) -> Any:
    """One field of a folder of arrays, memory-mapped where it can be; of Vectors, their rows."""
    return load_column(folder, name + (ROWS if kind is Vectors else ""), kind)


def check_files(folder: Path, manifest: Manifest) -> None:
    """UserError naming a file of a generation that is missing or cut short."""
    for file, expected in sizes(folder, manifest).items():
        size = file.stat().st_size if file.exists() else 0
        if size != expected:
            raise UserError(f"{file}: {size:,} bytes", f"{expected:,} bytes", f"run: modegraph repair {folder}")


def check_arrays(folder: Path, manifest: Manifest, but: str = "") -> None:
    """UserError when a file of the arrays, or of what they are based on, has a changed byte; those in the folder `but` are not read, nor are segments."""
    for file, facts in files_in(folder, manifest).items():
        if file.parent.name != but and not has_sum(file, facts["checksum"]):
            found = f"{file}: a changed byte"
            raise UserError(found, "the file as it was written", f"run: modegraph repair {folder}")


def _field_of(file: str) -> str:
    """The field that a file of the arrays is of."""
    return file.partition(".")[0]


def _ann_facts(ann: Ann) -> dict[str, Any]:
    return {"file": ann.file.name, "bytes": ann.file.stat().st_size, "probes": ann.probes, "recall": ann.recall}


def _names_in_use(folder: Path) -> list[str]:
    """`names_in` the manifest that is there; none without a sound one."""
    try:
        return names_in(read_manifest(folder))
    except UserError:
        return []
