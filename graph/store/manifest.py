"""The manifest of an index: its files, with their checksums. A reader opens only these files."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graph.errors import UserError
from graph.shared.ids import content_id
from graph.store.vectors import SEGMENT_FOLDER as SEGMENTS
from graph.types import Prompts

MANIFEST = "manifest.json"
FORMAT = 9
"""Format of index.sqlite and of the arrays (docs/reference/format.md)."""


class OtherFormat(UserError):
    """An index of a different format."""


def check_format(file: Path, version: int) -> None:
    """OtherFormat unless `version`, the format of a file, is FORMAT."""
    if version != FORMAT:
        remedy = "index the documents again, into a new folder"
        raise OtherFormat(f"{file}: format {version}", f"format {FORMAT}", remedy)


@dataclass(frozen=True)
class Base:
    """The full arrays of an earlier generation: their folder, the files that are in use, and the number of documents changed since then."""

    arrays: str
    files: dict[str, dict[str, Any]]
    changed_documents: int = 0


@dataclass(frozen=True)
class Manifest:
    """The content of an index. `identity` is its hash: indexes with equal identities have the same arrays and settings.

    `generation` is the number of times that this index was written, and is not unique across indexes. `arrays` is the folder of the `files`, each
    with its "bytes" and "checksum"; `encoder` is the fingerprint of the encoder; `segments` lists, for each field of vectors, its segments in
    order with their sizes in bytes.
    """

    identity: str
    generation: int
    settings: dict[str, Any]
    encoder: str
    arrays: str
    files: dict[str, dict[str, Any]]
    segments: dict[str, dict[str, int]]
    ann: dict[str, dict[str, Any]]
    """By segment: the `file` of its ANN index, its `bytes`, and `probes` and `recall` as in graph/store/ann.py."""
    base: Base | None
    """The full arrays to which these arrays contain changes; None if these are full arrays."""
    prompts: Prompts
    """Prompts of the encoder."""
    changed_passages: int
    """Passages added or deleted since the communities were computed."""
    grown: bool
    """Whether a graph above FLAT_LIMIT (graph/hierarchy/similarity.py) has gained or lost nodes since it was last built from scratch."""

    @property
    def full_arrays(self) -> Base:
        """The last full arrays: the base if there is one, else these arrays."""
        return self.base or Base(self.arrays, self.files)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of an index: a JSON object, followed by the hash of its text. UserError if there is no index or its manifest is
    missing or changed, OtherFormat if the index has a different format.
    """
    file = folder / MANIFEST
    if folder.is_file():
        raise UserError(f"{folder}: a file", "the folder of an index", "create one: modegraph index SRC --out FOLDER")
    if not folder.is_dir():
        remedy = f"create one: modegraph index SRC --out {folder}"
        raise UserError(f"no index at {str(folder)!r}", "the folder of an index", remedy)
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        remedy = f"run: modegraph index SRC --out {folder}"
        raise UserError(f"{folder}: no {MANIFEST}", "a finished index", remedy) from None
    body, _, hashed = text.rpartition("\n")
    if content_id(body) != hashed:
        found = f"{file}: its contents have changed"
        raise UserError(found, "the manifest as it was written", f"run: modegraph repair {folder}")
    facts = json.loads(body)
    check_format(file, facts.pop("format"))
    facts["encoder"], facts["prompts"] = facts["encoder"]["fingerprint"], Prompts(**facts["prompts"])
    facts["base"] = Base(**facts["base"]) if "base" in facts else None
    return Manifest(identity=hashed, **facts)


def generation_of(folder: Path) -> int | None:
    """The generation of the current manifest; None without a valid one."""
    try:
        return read_manifest(folder).generation
    except UserError:
        return None


def names_in(manifest: Manifest) -> list[str]:
    """The names of the folders, segments and ANN indexes of a generation."""
    segments = (name for sizes_by_name in manifest.segments.values() for name in sizes_by_name)
    folders = [manifest.arrays] if manifest.base is None else [manifest.arrays, manifest.base.arrays]
    return [*folders, *segments, *(facts["file"] for facts in manifest.ann.values())]


def sizes(folder: Path, manifest: Manifest) -> dict[Path, int]:
    """Every file of a generation, with its expected size in bytes."""
    arrays = {file: int(facts["bytes"]) for file, facts in files_in(folder, manifest).items()}
    others = [each for segments in manifest.segments.values() for each in segments.items()]
    others += [(facts["file"], facts["bytes"]) for facts in manifest.ann.values()]
    return arrays | {folder / SEGMENTS / name: count for name, count in others}


def files_in(folder: Path, manifest: Manifest) -> dict[Path, dict[str, Any]]:
    """Every file of the arrays and of their base, with its "bytes" and "checksum"."""
    folders = [(manifest.arrays, manifest.files)]
    if manifest.base is not None:
        folders.append((manifest.base.arrays, manifest.base.files))
    return {folder / arrays / name: facts for arrays, files in folders for name, facts in files.items()}
