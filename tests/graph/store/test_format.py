"""docs/reference/format.md compared with an index on disk: every file, its dtype and its shape."""

import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from graph.store.manifest import FORMAT, Manifest, read_manifest
from tests.places import ROOT

PAGE = (ROOT / "docs/reference/format.md").read_text(encoding="utf-8")
COLUMNS = re.findall(r"^\| `(\w+)` \| (texts|block|vectors|array \w+) \| ([A-Z ]+) \|", PAGE, re.MULTILINE)


def test_every_field_of_the_manifest_is_described() -> None:
    described = re.findall(
        r"^\| `(\w+)` \|", PAGE.partition("## The manifest")[2].partition("## Arrays")[0], re.MULTILINE
    )
    assert set(described) == {field.name for field in fields(Manifest)} - {"identity"} | {"format"}
    assert f"The format's number is {FORMAT}." in PAGE and f"| `format` | {FORMAT} |" in PAGE


def test_every_file_is_described_with_its_dtype_and_its_shape(hashed_isles: Path) -> None:
    manifest = read_manifest(hashed_isles)
    arrays = hashed_isles / manifest.arrays
    endings = {
        "texts": (".data.npy", ".starts.npy"),
        "block": (".data.npy", ".indices.npy", ".indptr.npy", ".shape.npy"),
        "vectors": (".rows.npy",),
    }
    described = {name + ending for name, kind, _ in COLUMNS for ending in endings.get(kind, (".npy",))}
    assert described == set(manifest.files) and len(COLUMNS) == 43
    size: dict[str, int] = {}
    for name, kind, letters in COLUMNS:
        if kind == "texts":
            starts = np.load(arrays / f"{name}.starts.npy")
            data = np.load(arrays / f"{name}.data.npy")
            assert (starts.dtype, data.dtype, starts[-1]) == (np.int64, np.uint8, len(data)), name
            shape: tuple[int, ...] = (len(starts) - 1,)
        elif kind == "block":
            parts = [np.load(arrays / f"{name}.{part}.npy") for part in ("data", "indices", "indptr", "shape")]
            assert [part.dtype for part in parts] == [np.float32, np.int32, np.int32, np.int64], name
            shape = tuple(parts[3].tolist())
            assert len(parts[2]) == shape[0] + 1 and parts[2][-1] == len(parts[0]) == len(parts[1]), name
        elif kind == "vectors":
            rows = np.load(arrays / f"{name}.rows.npy")
            (segment,) = manifest.segments[name]
            with (hashed_isles / "vectors" / segment).open("rb") as file:
                vectors, ids = np.load(file), np.load(file)
                assert file.read() == b"" and (vectors.dtype, ids.dtype) == (np.float32, "S32"), name
            assert rows.dtype == np.int64 and len(vectors) == len(ids), name
            shape = vectors[rows].shape
        else:
            array = np.load(arrays / f"{name}.npy")
            assert array.dtype == kind.partition(" ")[2], name
            shape = array.shape
        for letter, count in zip(letters.split(), shape, strict=True):
            assert size.setdefault(letter, count) == count, f"{name}: {letter}"
    assert size["X"] == size["P"] + size["S"]


@pytest.mark.parametrize("file", ["index.sqlite", "index.sqlite.seal", "manifest.json", "writer.lock"])
def test_other_files_of_an_index_are_named_on_the_page(hashed_isles: Path, file: str) -> None:
    assert (hashed_isles / file).exists() and f"`{file}`" in PAGE
