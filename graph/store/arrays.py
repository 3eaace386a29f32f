"""Derived arrays on disk: one folder a generation, a manifest with checksums written last and renamed into place.

A reader opens what the manifest names and nothing else, so a build beside it never disturbs it. A folder of arrays is named after its
contents: no other index has files of those names, so that one copied over it leaves open what a reader has opened. Vectors are not in
it, only which rows of the segments they are (graph/store/segments.py).
"""

import json
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar, cast, get_type_hints

import numpy as np
import scipy.sparse as sp

from graph.disk.npy import save_array
from graph.shared.errors import UserError
from graph.shared.ids import content_id, has_sum, quick_sum
from graph.shared.types import Prompts
from graph.store.ann import Ann, open_ann
from graph.store.columns.blocks import narrow
from graph.store.columns.moved import Block, whole
from graph.store.columns.patch import MOVED, Moved, MovedFiles, save_moved
from graph.store.columns.strings import Strings
from graph.store.segments import FOLDER as SEGMENTS
from graph.store.segments import Vectors, open_vectors, save_vectors, with_ann

MANIFEST = "manifest.json"
OLDEST, FORMAT = 4, 9
"""Of index.sqlite and of the arrays (docs/reference/format.md): what is read, and what is written."""
BLOCK_PARTS, OLD_BLOCK = ("data", "indices", "indptr"), ".npz"
"""Of a block, the arrays that it is kept in beside its shape; before format 8 all were in one file."""
ROWS = ".rows"
"""After the name of a field of vectors, whose rows of the segments are kept."""
BLOCKS: tuple[Any, ...] = (sp.csr_array, Block)
MAY_BE_MOVED: tuple[Any, ...] = (Strings, Block)
"""Kinds of fields that a reader takes with what has changed beside them."""
_WORKED_OUT = "worked out of"


def worked_out_of(field: str, how: Callable[[Any], Any]) -> dict[str, Any]:
    """The metadata of a field that older formats have not: it is worked out of another one."""
    return {_WORKED_OUT: (field, how)}


class OtherFormat(UserError):
    """An index that another version of this program wrote."""


def check_format(file: Path, version: int) -> None:
    """OtherFormat when this program cannot read what another version of it wrote."""
    if version > FORMAT:
        found, remedy = f"{file}: format {version}, of a newer modegraph", "install one as new as that which wrote it"
        raise OtherFormat(found, f"at most format {FORMAT}", remedy)
    if version < OLDEST:
        remedy = "index the documents again, into a new folder"
        raise OtherFormat(f"{file}: format {version}", f"format {OLDEST} to {FORMAT}", remedy)


D = TypeVar("D")


@dataclass(frozen=True)
class Base:
    """The whole arrays of an earlier generation: their folder, those of its files that are in use, and how many documents have changed since."""

    arrays: str
    files: dict[str, dict[str, Any]]
    changed_documents: int = 0


@dataclass(frozen=True)
class Manifest:
    """What an index holds. `identity` is the hash of all of it: equal for the same arrays and settings, and for no others.

    `generation` counts the times that this index was written; other indexes have the same numbers. `arrays` is the folder of the
    `files`, each with its "bytes" and its "checksum"; `encoder` is the fingerprint of what made the vectors, whose `segments` are
    told for each field, in order, with their bytes.
    """

    identity: str
    generation: int
    settings: dict[str, Any]
    encoder: str
    arrays: str
    files: dict[str, dict[str, Any]]
    segments: dict[str, dict[str, int]]
    ann: dict[str, dict[str, Any]]
    """By segment: the `file` of its ANN index, its `bytes`, and `probes` and `recall` as graph/store/ann.py has them."""
    base: "Base | None" = None
    """Of which generation the arrays say what has changed since; None where they are whole."""
    prompts: Prompts | None = None
    """Of the encoder; None where an earlier version wrote the index."""
    changed_passages: int = 0
    """That came or went since the communities were found."""
    grown: bool = False
    """Whether nodes came to or went from a graph of more than graph/layers/similarity.py's FLAT_LIMIT since it was made at once."""

    @property
    def whole(self) -> Base:
        """The last arrays that were written whole: those that these are based on, or these."""
        return self.base or Base(self.arrays, self.files)


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
    that have moved only what has changed is written if their `base` is given (.moved.npz, graph/store/columns/patch.py), else all.
    `facts` go into the manifest. `merge_factor`, `ann_rows` and `compact` are those of graph/store/segments.py.
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
        if field.name in known and isinstance(column, Moved):
            save_moved(scratch / (field.name + MOVED), column)
        else:
            _save_field(scratch, field.name + (ROWS if isinstance(value, Vectors) else ""), whole(column))
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


def names_in(manifest: Manifest) -> list[str]:
    """The folders, the segments and their ANN indexes of a generation."""
    segments = (name for named in manifest.segments.values() for name in named)
    folders = [manifest.arrays] if manifest.base is None else [manifest.arrays, manifest.base.arrays]
    return [*folders, *segments, *(facts["file"] for facts in manifest.ann.values())]


def load_arrays(folder: Path, kind: type[D], manifest: Manifest | None = None, moved: bool = False) -> D:
    """The arrays of a manifest (None: the one that is there now) as `kind`, memory-mapped; what has changed since they were whole is put into
    them when they are asked for, or, if `moved`, stays beside them, as it does beside texts and fields of the kind `Block`.

    UserError naming the file when one is missing or cut short. Bytes are checked by `check_arrays`.
    """
    manifest = manifest or read_manifest(folder)
    check_files(folder, kind, manifest)
    hints = get_type_hints(kind)
    files = MovedFiles()
    written, later = _written(kind, manifest)
    values = {name: _load(folder, manifest, files, name, hints[name]) for name in written}
    values |= {name: how(whole(values[of])) for name, (of, how) in later.items()}
    ann = {
        name: open_ann(folder / SEGMENTS / facts["file"], facts["probes"], facts["recall"])
        for name, facts in manifest.ann.items()
    }
    for name, named in manifest.segments.items():
        rows = values[name] if moved else whole(values[name])
        values[name] = open_vectors(folder, list(named), rows, ann)
    return kind(**values) if moved else _put_together_when_asked(kind, values, hints)


def _put_together_when_asked(kind: type[D], values: Mapping[str, Any], hints: Mapping[str, Any]) -> D:
    """The same columns: one that has moved is put together when it is first asked for, as nobody asks for all of them."""
    moved = {name for name, value in values.items() if isinstance(value, Moved) and hints[name] not in MAY_BE_MOVED}
    later = {name: cached_property(partial(_put_together, values[name])) for name in moved}
    data = cast(D, object.__new__(type(kind.__name__, (kind,), later)))
    vars(data).update({name: value for name, value in values.items() if name not in moved})
    return data


def _put_together(column: Any, _: Any) -> Any:
    return whole(column)


def _written(kind: type[Any], manifest: Manifest) -> tuple[list[str], dict[str, Any]]:
    """The fields that a generation has, and those that it is too old for, each with what it is worked out of."""
    has = set(map(_field_of, manifest.files)) | set(map(_field_of, manifest.base.files if manifest.base else ()))
    later = {field.name: field.metadata[_WORKED_OUT] for field in fields(kind) if _WORKED_OUT in field.metadata}
    later = {name: how for name, how in later.items() if name not in has}
    return [field.name for field in fields(kind) if field.name not in later], later


def _load(folder: Path, manifest: Manifest, moved: MovedFiles, name: str, kind: Any) -> Any:
    """One field; of Vectors, their rows."""
    if manifest.base is None or name + MOVED not in manifest.files:
        return load_field(folder / manifest.arrays, name, kind)
    base = load_field(folder / manifest.base.arrays, name, kind)
    return moved.load(folder / manifest.arrays / (name + MOVED), base)


def check_files(folder: Path, kind: type[Any], manifest: Manifest) -> None:
    """UserError naming a file of a generation that is missing or cut short."""
    remedy = f"run: modegraph repair {folder}"
    for name in never_written(kind, manifest):
        raise UserError(f"{folder / manifest.arrays / name}: never written", "arrays of this version", remedy)
    for file, expected in sizes(folder, manifest).items():
        size = file.stat().st_size if file.exists() else 0
        if size != expected:
            raise UserError(f"{file}: {size:,} bytes", f"{expected:,} bytes", remedy)


def check_arrays(folder: Path, manifest: Manifest, but: str = "") -> None:
    """UserError when a file of the arrays, or of what they are based on, has a changed byte; those in the folder `but` are not read, nor are segments."""
    for file, facts in files_in(folder, manifest).items():
        if file.parent.name != but and not has_sum(file, facts["checksum"]):
            found = f"{file}: a changed byte"
            raise UserError(found, "the file as it was written", f"run: modegraph repair {folder}")


def files_in(folder: Path, manifest: Manifest) -> dict[Path, dict[str, Any]]:
    """Every file of the arrays and of what they are based on, with its "bytes" and its "checksum"."""
    folders = [(manifest.arrays, manifest.files)]
    if manifest.base is not None:
        folders.append((manifest.base.arrays, manifest.base.files))
    return {folder / arrays / name: facts for arrays, files in folders for name, facts in files.items()}


def sizes(folder: Path, manifest: Manifest) -> dict[Path, int]:
    """Every file of a generation, with the bytes that it has."""
    arrays = {file: int(facts["bytes"]) for file, facts in files_in(folder, manifest).items()}
    named = [each for segments in manifest.segments.values() for each in segments.items()]
    named += [(facts["file"], facts["bytes"]) for facts in manifest.ann.values()]
    return arrays | {folder / SEGMENTS / name: count for name, count in named}


def read_manifest(folder: Path) -> Manifest:
    """The manifest of an index: a JSON object, and under it the hash of its text. UserError when missing or changed, OtherFormat where this program cannot read it."""
    file = folder / MANIFEST
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder", "an index", f"make one with: modegraph index SRC --out {folder}")
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        remedy = f"run: modegraph index SRC --out {folder}"
        raise UserError(f"{folder}: no {MANIFEST}", "a finished index", remedy) from None
    body, _, hashed = text.rpartition("\n")
    if content_id(body) != hashed:
        raise UserError(f"{file}: a changed byte", "the manifest as it was written", f"run: modegraph repair {folder}")
    facts = json.loads(body)
    check_format(file, facts["format"])
    return Manifest(
        identity=hashed,
        generation=facts["generation"],
        settings=facts["settings"],
        encoder=facts["encoder"]["fingerprint"],
        arrays=facts["arrays"],
        files=facts["files"],
        segments=facts.get("segments", {}),
        ann=facts.get("ann", {}),
        base=Base(**facts["base"]) if "base" in facts else None,
        prompts=Prompts(**facts["prompts"]) if "prompts" in facts else None,
        changed_passages=facts.get("changed_passages", 0),
        grown=facts.get("grown", False),
    )


def _ann_facts(ann: Ann) -> dict[str, Any]:
    return {"file": ann.file.name, "bytes": ann.file.stat().st_size, "probes": ann.probes, "recall": ann.recall}


def generation_of(folder: Path) -> int | None:
    """The generation of the manifest that is there; None without a sound one."""
    try:
        return read_manifest(folder).generation
    except UserError:
        return None


def _names_in_use(folder: Path) -> list[str]:
    """`names_in` the manifest that is there; none without a sound one."""
    try:
        return names_in(read_manifest(folder))
    except UserError:
        return []


def never_written(kind: type[Any], manifest: Manifest) -> list[str]:
    """The files that the fields of the dataclass `kind` are kept in and a generation does not have."""
    blocks = tuple(f".{part}.npy" for part in (*BLOCK_PARTS, "shape"))
    endings = {Strings: (".data.npy", ".starts.npy"), **dict.fromkeys(BLOCKS, blocks), Vectors: (ROWS + ".npy",)}
    hints, found = get_type_hints(kind), manifest.files
    written, _ = _written(kind, manifest)
    names = (name for name in written if not found.keys() & {name + MOVED, name + OLD_BLOCK})
    files = (name + ending for name in names for ending in endings.get(hints[name], (".npy",)))
    return [file for file in files if file not in found]


def _field_of(file: str) -> str:
    """The field that a file of the arrays is of."""
    return file.partition(".")[0]


def _save_field(target: Path, name: str, value: Any) -> None:
    if isinstance(value, Strings):
        save_array(target / f"{name}.data.npy", value.data)
        save_array(target / f"{name}.starts.npy", value.starts)
    elif sp.issparse(value):
        kept = narrow(value)
        for part in BLOCK_PARTS:
            save_array(target / f"{name}.{part}.npy", getattr(kept, part))
        save_array(target / f"{name}.shape.npy", np.array(kept.shape, np.int64))
    else:
        save_array(target / f"{name}.npy", value)


def load_field(target: Path, name: str, kind: Any) -> Any:
    """One field of a generation's folder, memory-mapped where it can be; of Vectors, their rows."""
    if kind is Strings:
        return Strings(_load_array(target / f"{name}.data.npy"), _load_array(target / f"{name}.starts.npy"))
    if kind in BLOCKS:
        if (target / f"{name}{OLD_BLOCK}").exists():
            return sp.csr_array(sp.load_npz(target / f"{name}{OLD_BLOCK}"))
        shape = tuple(np.load(target / f"{name}.shape.npy").tolist())
        return sp.csr_array(tuple(_load_array(target / f"{name}.{part}.npy") for part in BLOCK_PARTS), shape=shape)
    return _load_array(target / (name + (ROWS if kind is Vectors else "") + ".npy"))


def _load_array(file: Path) -> Any:
    """A memory map as a plain array: numpy's class for maps would make every slice three times as slow."""
    return np.asarray(np.load(file, mmap_mode="r", allow_pickle=False))
