"""Edits that are written as patches of the base arrays: little is written, readers see no difference, damage is reported, and compact merges the patches."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from graph.build.build import build_index
from graph.build.lifecycle import compact_index, delete_documents, repair_index, verify_index
from graph.errors import UserError
from graph.index.index import open_index
from graph.store.arrays import load_arrays
from graph.store.columns.moved import MovedBlock
from graph.store.data import IndexData
from graph.store.index_settings import IndexSettings
from graph.store.manifest import read_manifest
from graph.types import Document
from tests.corpora import guild_documents
from tests.graph.build.patches import edits_as_patches
from tests.graph.damage import flip
from tests.graph.hashed import encoder
from tests.graph.same import assert_same_index

SETTINGS = IndexSettings(min_similarity=0.2, neighbours=3, layers_on_edit="now")
GUILDS = guild_documents()
NEW = Document("new", "Member Zan", "Member Zan joined the Netmakers Guild in 1799. Zan keeps bees.")
CHANGED = Document(GUILDS[4].source, GUILDS[4].title, "Nobody knows what became of the Coopers Guild.")


def put(folder: Path, documents: list[Document]) -> None:
    build_index(folder, documents, SETTINGS, encoder)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Path]:
    put(tmp_path / "i", GUILDS)
    with edits_as_patches():
        yield tmp_path / "i"


def from_scratch(index: Path, documents: list[Document]) -> IndexData:
    put(index.parent / "scratch", documents)
    return load_arrays(index.parent / "scratch", IndexData)


def test_an_edit_leaves_the_base_arrays_alone_and_writes_little(index: Path) -> None:
    whole = read_manifest(index)
    before = {file: file.stat() for file in (index / whole.arrays).iterdir()}
    for document in (NEW, CHANGED):
        put(index, [document])
        manifest = read_manifest(index)
        assert manifest.base is not None and manifest.base.arrays == whole.arrays
        assert {"passage_texts", "proposition_texts", "term_count_WP", "proposition_entity_NE"} <= {
            name.removesuffix(".moved.npz") for name in manifest.files
        }
    for file, stat in before.items():
        assert (file.stat().st_ino, file.stat().st_mtime_ns) == (stat.st_ino, stat.st_mtime_ns)
    assert manifest.base.changed_documents == 2 and verify_index(index) == []
    (moved,) = (index / manifest.arrays).glob("passage_texts.moved.npz")
    assert moved.stat().st_size < 3_000 < (index / whole.arrays / "passage_texts.data.npy").stat().st_size
    remaining = [*GUILDS[:4], CHANGED, *GUILDS[5:], NEW]
    assert_same_index(load_arrays(index, IndexData), from_scratch(index, remaining))
    assert len(open_index(index, encoder).passages_of("new")) == 1


def test_a_reader_assembles_a_column_when_it_is_first_used(index: Path) -> None:
    """This works even if the files that the reader opened have been deleted by then."""
    put(index, [NEW])
    data = open_index(index, encoder).data
    assert isinstance(data.term_count_WP, MovedBlock)
    not_yet_used = {"proposition_entity_NE", "occurrence_start_M", "passage_proposition_PN"}
    assert not not_yet_used & vars(data).keys()
    for document in GUILDS[:2]:
        delete_documents(index, [document.source], encoder)
    compact_index(index, encoder)
    assert_same_index(data, from_scratch(index, [*GUILDS, NEW]))
    assert data.occurrence_end_M is data.occurrence_end_M and not_yet_used < vars(data).keys()
    assert replace(data, synonym_EE=data.passage_next_PP).synonym_EE is data.passage_next_PP


def test_compact_writes_everything_again_as_a_fresh_build_does(index: Path) -> None:
    put(index, [NEW])
    delete_documents(index, [GUILDS[0].source, GUILDS[9].source], encoder)
    compact_index(index, encoder)
    from_scratch(index, [*GUILDS[1:9], *GUILDS[10:], NEW])
    manifest, fresh = read_manifest(index), read_manifest(index.parent / "scratch")
    assert manifest.base is None and (manifest.files, manifest.segments) == (fresh.files, fresh.segments)
    assert {file.name for file in index.glob("arrays-*")} == {manifest.arrays}


@pytest.mark.long
def test_a_column_once_rewritten_in_full_is_rewritten_in_full_again(tmp_path: Path) -> None:
    """Its changes cannot be derived from the base."""
    with edits_as_patches():
        put(tmp_path / "i", GUILDS[:1])
        for document in GUILDS[1:9]:
            put(tmp_path / "i", [document])
        manifest = read_manifest(tmp_path / "i")
        assert manifest.base is not None and "term_count_WP.data.npy" in manifest.files
        assert not [file for file in manifest.base.files if file.startswith("term_count_WP")]
        assert_same_index(load_arrays(tmp_path / "i", IndexData), from_scratch(tmp_path / "i", GUILDS[:9]))


@pytest.mark.long
def test_after_too_many_changes_all_arrays_are_rewritten_as_the_next_base(index: Path) -> None:
    with edits_as_patches(max_share=3 / len(GUILDS)):
        bases = []
        for document in GUILDS[:5]:
            delete_documents(index, [document.source], encoder)
            manifest = read_manifest(index)
            bases.append(None if manifest.base is None else manifest.base.changed_documents)
    assert bases == [1, 2, 3, None, 1]
    assert_same_index(load_arrays(index, IndexData), from_scratch(index, GUILDS[5:]))


def test_an_index_whose_changes_are_unknown_is_written_in_full(index: Path) -> None:
    """Without the manifest the changes are unknown: everything is read, and no patch is written."""
    put(index, [NEW])
    (index / "manifest.json").unlink()
    put(index, [CHANGED])
    assert read_manifest(index).base is None
    assert_same_index(load_arrays(index, IndexData), from_scratch(index, [*GUILDS[:4], CHANGED, *GUILDS[5:], NEW]))


@pytest.mark.long
@pytest.mark.parametrize("where", ["base", "patch"])
def test_a_damaged_file_is_reported_and_repaired(index: Path, where: str) -> None:
    put(index, [NEW])
    manifest = read_manifest(index)
    assert manifest.base is not None
    name = {
        "base": f"{manifest.base.arrays}/passage_texts.data.npy",
        "patch": f"{manifest.arrays}/passage_texts.moved.npz",
    }
    flip(index / name[where])
    assert [found.file for found in verify_index(index)] == [name[where]]
    if where == "patch":
        with pytest.raises(UserError, match=r"passage_texts\.moved\.npz: its contents have changed"):
            put(index, [CHANGED])
    else:
        put(index, [CHANGED])
        assert [found.file for found in verify_index(index)] == [name[where]], "an edit should not hide the damage"
        with (
            edits_as_patches(max_share=0),
            pytest.raises(UserError, match=r"passage_texts\.data\.npy: its contents have changed"),
        ):
            put(index, [Document("more", "", "It is so.")])
    repair_index(index, encoder)
    assert verify_index(index) == []
    put(index, [CHANGED, Document("more", "", "It is so.")])
    delete_documents(index, ["more"], encoder)
    assert_same_index(load_arrays(index, IndexData), from_scratch(index, [*GUILDS[:4], CHANGED, *GUILDS[5:], NEW]))
