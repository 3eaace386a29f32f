"""An index in segments: an edit writes only new vectors, readers keep the generation that they opened, damage is named and repaired, a kill loses nothing."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graph.index.index
import graph.store.embedding_cache
from graph.build.build import build_index
from graph.build.lifecycle import (
    compact_index,
    delete_documents,
    index_status,
    repair_index,
    resume_build,
    verify_index,
)
from graph.errors import UserError
from graph.index.index import open_index
from graph.store.arrays import load_arrays
from graph.store.data import VECTOR_FIELDS, IndexData
from graph.store.index_settings import IndexSettings
from graph.store.manifest import read_manifest
from graph.types import Document
from tests.corpora import guild_documents
from tests.fakes import HashEncoder
from tests.graph.build.conftest import Place
from tests.graph.damage import cut, flip
from tests.graph.hashed import encoder
from tests.graph.same import assert_same_index

SETTINGS = IndexSettings(min_similarity=0.2, neighbours=3, merge_factor=4)
GUILDS = guild_documents()
FIELDS = [field for _, field in VECTOR_FIELDS.values()]
NEW = Document("new", "Member Zan", "Member Zan joined the Netmakers Guild in 1799. Zan keeps bees.")

sqlite_only = pytest.mark.parametrize("place", ["sqlite"], indirect=True)
"""For tests that do not depend on the kind of store."""


def put(folder: Path, documents: list[Document]) -> None:
    build_index(folder, documents, SETTINGS, encoder)


@pytest.fixture
def index(place: Place, tmp_path: Path) -> Path:
    put(tmp_path / "i", GUILDS[:30])
    return tmp_path / "i"


@sqlite_only
def test_an_edit_writes_only_the_vectors_that_it_adds(index: Path) -> None:
    before = {file: file.stat() for file in (index / "vectors").iterdir()}
    put(index, [NEW])
    data, segments = load_arrays(index, IndexData), read_manifest(index).segments
    for file, stat in before.items():
        assert (file.stat().st_ino, file.stat().st_mtime_ns) == (stat.st_ino, stat.st_mtime_ns)
    assert [len(segments[field]) for field in FIELDS[:3]] == [2, 2, 2]
    assert len(data.passage_vectors_PD.segments[1].ids_R) == 1
    assert set().union(*segments.values()) == {file.name for file in (index / "vectors").iterdir()}
    delete_documents(index, ["new"], encoder)
    assert list(read_manifest(index).segments["passage_vectors_PD"]) == list(segments["passage_vectors_PD"])[:1]


def test_many_edits_equal_a_single_build_and_compact_gives_the_same_bytes(index: Path) -> None:
    for document in GUILDS[30:]:
        put(index, [document])
    delete_documents(index, [document.source for document in GUILDS[3:12]], encoder)
    data, twin = load_arrays(index, IndexData), index.parent / "twin"
    assert len(data.proposition_vectors_ND.segments) > 1
    put(twin, [*GUILDS[:3], *GUILDS[12:]])
    assert_same_index(data, load_arrays(twin, IndexData))
    compact_index(index, encoder)
    a, b = read_manifest(index), read_manifest(twin)
    assert (a.files, a.segments) == (b.files, b.segments) and verify_index(index) == []
    assert {file.name for file in (index / "vectors").iterdir()} == set().union(*a.segments.values())


def test_a_reader_keeps_the_generation_that_it_opened_during_all_later_edits(index: Path) -> None:
    put(index, [NEW])
    reader = open_index(index, encoder)
    vectors_before = {field: np.array(getattr(reader.data, field)) for field in FIELDS}
    for document in GUILDS[30:]:
        put(index, [document])
        delete_documents(index, [document.source], encoder)
    compact_index(index, encoder)
    files = {file.name for file in (index / "vectors").iterdir()}
    assert not files & {segment.name for segment in reader.data.passage_vectors_PD.segments}
    for field, vectors in vectors_before.items():
        assert np.array_equal(getattr(reader.data, field), vectors), field
    assert reader.passages_of("new")[0].title == "Member Zan"


@sqlite_only
def test_a_reader_overtaken_by_edits_opens_the_current_generation(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load, before = graph.index.index.load_arrays, read_manifest(index).generation

    def load_after_edits(*arguments: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr("graph.index.index.load_arrays", load)
            for document in GUILDS[30 : 30 + 2 * (read_manifest(index).generation == before)]:
                put(index, [document])
        return load(*arguments)

    monkeypatch.setattr("graph.index.index.load_arrays", load_after_edits)
    assert open_index(index, encoder).manifest.generation == before + 2
    (index / read_manifest(index).arrays / "passage_ids.data.npy").unlink()
    with pytest.raises(UserError, match=r"passage_ids\.data\.npy: 0 bytes"):
        open_index(index, encoder)


@sqlite_only
@pytest.mark.parametrize("damage", [flip, cut, Path.unlink])
def test_a_damaged_segment_is_named_and_repaired_and_only_its_vectors_are_encoded(
    index: Path, damage: Callable[[Path], None]
) -> None:
    put(index, [NEW])
    data = load_arrays(index, IndexData)
    small = data.proposition_vectors_ND.segments[1]
    damage(index / "vectors" / small.name)
    assert [found.file for found in verify_index(index)] == [f"vectors/{small.name}"]
    new_encoder = HashEncoder()
    repair_index(index, lambda spec: new_encoder)
    assert len(new_encoder.encoded) == len(small.ids_R) and verify_index(index) == []
    put(index.parent / "twin", [*GUILDS[:30], NEW])
    assert_same_index(load_arrays(index, IndexData), load_arrays(index.parent / "twin", IndexData))


@sqlite_only
def test_a_merged_segment_is_repaired_from_the_segments_before_it(index: Path) -> None:
    for document in (NEW, *GUILDS[30:32]):
        put(index, [document])
    before = read_manifest(index).segments["passage_vectors_PD"]
    put(index, [GUILDS[32]])
    (merged,) = read_manifest(index).segments["passage_vectors_PD"].keys() - before.keys()
    (index / "vectors" / merged).unlink()
    new_encoder = HashEncoder()
    repair_index(index, lambda spec: new_encoder)
    assert len(new_encoder.encoded) == 1, "only the passage of the last edit should be encoded"


@sqlite_only
@pytest.mark.parametrize("name", ["similarity_XX.indptr.npy", "term_count_WP.data.npy", "proposition_texts.data.npy"])
def test_an_edit_does_not_build_on_damaged_files(index: Path, name: str) -> None:
    (file,) = index.rglob(name)
    flip(file)
    with pytest.raises(
        UserError,
        match=rf"{name}: its contents have changed\. Expected the file as it was written\. Run: modegraph repair",
    ):
        put(index, [NEW])
    assert file.name in [Path(found.file).name for found in verify_index(index)]
    repair_index(index, encoder)
    put(index.parent / "twin", [*GUILDS[:30], NEW])
    assert_same_index(load_arrays(index, IndexData), load_arrays(index.parent / "twin", IndexData))


@sqlite_only
def test_damage_to_a_segment_is_found_after_edits_that_reuse_it(index: Path) -> None:
    segment = load_arrays(index, IndexData).entity_vectors_ED.segments[0].name
    flip(index / "vectors" / segment)
    put(index, [NEW])
    assert [found.file for found in verify_index(index)] == [f"vectors/{segment}"]
    with pytest.raises(UserError, match="its contents have changed"):
        compact_index(index, encoder)


WRITER = """
import os, signal
from pathlib import Path
from tests.graph.build.test_segmented import NEW, put
replace = Path.replace
def die(self, target):
    if Path(target).name == "manifest.json":
        os.kill(os.getpid(), signal.SIGKILL)
    return replace(self, target)
Path.replace = die
put(Path({folder!r}), [NEW])
"""


def test_a_kill_before_the_manifest_is_renamed_leaves_the_last_generation_and_no_text_is_encoded_again(
    index: Path,
) -> None:
    before = read_manifest(index)
    child = subprocess.run([sys.executable, "-P", "-c", WRITER.format(folder=str(index))], check=False)
    assert child.returncode == -signal.SIGKILL and read_manifest(index) == before
    assert len(list((index / "vectors").iterdir())) > len(set().union(*before.segments.values()))
    assert "new" not in open_index(index, encoder).sources() and index_status(index).unfinished
    new_encoder = HashEncoder()
    resume_build(index, lambda spec: new_encoder)
    assert new_encoder.encoded == [] and verify_index(index) == []
    compact_index(index, encoder)
    put(index.parent / "twin", [*GUILDS[:30], NEW])
    assert read_manifest(index).segments == read_manifest(index.parent / "twin").segments
    assert {file.name for file in (index / "vectors").iterdir()} == set().union(*read_manifest(index).segments.values())


@pytest.mark.parametrize("stored_as", ["float32", "float16"])
def test_vectors_that_do_not_fit_in_memory_are_streamed_to_the_same_bytes(
    stored_as: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = SETTINGS.model_copy(update={"vectors": stored_as})

    def build_and_edit(folder: Path) -> list[dict[str, dict[str, int]]]:
        generations = []
        for documents in (GUILDS[:30], [NEW], GUILDS[30:33], GUILDS[33:]):
            build_index(folder, documents, settings, encoder)
            generations.append(read_manifest(folder).segments)
            files = {file.name for file in (folder / "vectors").iterdir()}
            last_two = {name for segments in generations[-2:] for each in segments.values() for name in each}
            assert last_two >= files, "no file of an older generation should be left"
        delete_documents(folder, ["new"], encoder)
        compact_index(folder, encoder)
        return [*generations, read_manifest(folder).segments]

    streamed_fields, write = list[str](), graph.store.vectors.write_segment

    def record_field(folder: Path, field: str, *rest: Any) -> Any:
        streamed_fields.append(field)
        return write(folder, field, *rest)

    monkeypatch.setattr(graph.store.embedding_cache, "write_segment", record_field)
    in_memory = build_and_edit(tmp_path / "memory")
    assert not streamed_fields
    monkeypatch.setattr(graph.store.embedding_cache, "MAX_IN_MEMORY", 2)
    streamed = build_and_edit(tmp_path / "streamed")
    assert set(streamed_fields) == set(FIELDS)
    assert streamed == in_memory and verify_index(tmp_path / "streamed") == []
    assert_same_index(load_arrays(tmp_path / "streamed", IndexData), load_arrays(tmp_path / "memory", IndexData))
