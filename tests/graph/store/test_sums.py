"""Checksums of the blocks of index.sqlite: an edit reads only the blocks that it writes and is refused if they are damaged; `verify` finds other damage."""

import os
import shutil
from pathlib import Path

import pytest

from graph.build.build import build_index
from graph.build.lifecycle import delete_documents, verify_index
from graph.build.stores import open_for_writing
from graph.errors import UserError
from graph.store import seal, sqlite
from graph.store.index_settings import IndexSettings
from graph.store.seal import BlockSums
from graph.types import Document
from tests.graph.damage import flip
from tests.graph.hashed import encoder

DOCUMENTS = [
    Document(f"d{number:03}", f"Port {number}", f"Keeper {number} of Port {number} saw {900 + number} ships. " * 40)
    for number in range(120)
]
NEW = Document("new", "New Port", "The keeper of New Port keeps bees.")


def index_documents(folder: Path, documents: list[Document]) -> None:
    build_index(folder, documents, IndexSettings(), encoder)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(seal, "BLOCK_BYTES", 4_096)
    index_documents(tmp_path / "i", DOCUMENTS)
    return tmp_path / "i"


def test_updating_the_written_blocks_gives_the_sums_of_the_whole_file(tmp_path: Path) -> None:
    file, block = tmp_path / "file", seal.BLOCK_BYTES
    file.write_bytes(os.urandom(3 * block + 5))
    before = BlockSums.of(file)
    assert len(before.blocks) == 4 and BlockSums.read(before.text) == before
    flip(file, block + 7)
    with file.open("ab") as opened:
        opened.write(os.urandom(block))
    assert not before.match(file, [1]) and before.match(file, [0, 2, 3, 9])
    assert before.updated(file, [1]) == BlockSums.of(file) != before.updated(file, [])
    os.truncate(file, block // 2)
    assert before.updated(file, [0]) == BlockSums.of(file) and not before.match(file, [0])
    damaged = before.text.replace(before.blocks[2], before.blocks[1])
    assert BlockSums.read(damaged) is None and BlockSums.read("x1\nx1") is None


@pytest.mark.long
@pytest.mark.parametrize("max_logged", [1, 64 << 20])
def test_after_edits_the_seal_matches_the_whole_file(
    index: Path, max_logged: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seal does not depend on how often the write-ahead log was checkpointed into the file in between."""
    monkeypatch.setattr(sqlite, "MAX_LOGGED_BYTES", max_logged)
    read: list[int] = []
    sum_of = seal._block_sum
    monkeypatch.setattr(seal, "_block_sum", lambda file, block, most: read.append(block) or sum_of(file, block, most))
    index_documents(index, [NEW])
    delete_documents(index, [DOCUMENTS[7].source], encoder)
    blocks = len(BlockSums.of(index / "index.sqlite").blocks)
    assert 0 < len(set(read[:-blocks])) < blocks, "an edit should not read all blocks"
    assert verify_index(index) == [] and blocks > 10
    index_documents(index, DOCUMENTS[:40])
    assert verify_index(index) == []


@pytest.mark.long
def test_damage_outside_the_written_blocks_is_reported_and_damage_inside_them_is_refused(index: Path) -> None:
    file, twin = index / "index.sqlite", index.parent / "twin"
    shutil.copytree(index, twin)
    index_documents(twin, [NEW])
    before, after = BlockSums.of(file).blocks, BlockSums.of(twin / "index.sqlite").blocks
    same, other = (
        [block for block, each in enumerate(before) if (after[block] == each) is unchanged]
        for unchanged in (True, False)
    )
    untouched, touched = (blocks[len(blocks) // 2] * seal.BLOCK_BYTES + 2_000 for blocks in (same, other))
    flip(file, untouched)
    index_documents(index, [NEW])
    assert [found.file for found in verify_index(index)] == ["index.sqlite"], (
        "an edit elsewhere should not hide the damage"
    )
    flip(file, untouched)
    assert verify_index(index) == []
    shutil.rmtree(twin)
    index_documents(twin, DOCUMENTS)
    flip(twin / "index.sqlite", touched)
    with pytest.raises(UserError, match="its contents have changed since the last run"):
        index_documents(twin, [NEW])
    assert "index.sqlite" in [found.file for found in verify_index(twin)]


@pytest.mark.long
def test_a_writer_that_changes_nothing_leaves_the_seal_unchanged(index: Path) -> None:
    before = (index / "index.sqlite.seal").read_text()
    with pytest.raises(KeyError), open_for_writing(index):
        raise KeyError
    assert (index / "index.sqlite.seal").read_text() == before and verify_index(index) == []
