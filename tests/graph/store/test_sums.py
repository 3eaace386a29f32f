"""Checksums of the blocks of index.sqlite: an edit reads only the blocks that it writes and is refused if they are damaged; `verify` finds other damage."""

import os
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from graph.build.build import build_index
from graph.build.lifecycle import delete_documents, index_status, verify_index
from graph.build.stores import open_for_writing
from graph.errors import DamagedFile
from graph.store import seal, sqlite
from graph.store.index_settings import IndexSettings
from graph.store.seal import BlockSums, check_seal, renew_seal
from graph.store.sqlite import INDEX_AGAIN
from graph.types import Document
from tests.graph.damage import flip
from tests.graph.hashed import encoder

DOCUMENTS = [
    Document(f"d{number:03}", f"Port {number}", f"Keeper {number} of Port {number} saw {900 + number} ships. " * 40)
    for number in range(120)
]
META_BLOCK = 1
"""The block of the table `meta`, which every edit writes."""
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
    flip(file, 4 * block)
    flip(file, block + 7)
    os.truncate(file, 3 * block + 5)
    assert before.updated(file, []) == before
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
    same = [block for block, each in enumerate(before) if after[block] == each]
    assert META_BLOCK not in same
    untouched = same[len(same) // 2] * seal.BLOCK_BYTES + 2_000
    flip(file, untouched)
    index_documents(index, [NEW])
    assert [found.file for found in verify_index(index)] == ["index.sqlite"], (
        "an edit elsewhere should not hide the damage"
    )
    flip(file, untouched)
    assert verify_index(index) == []
    shutil.rmtree(twin)
    index_documents(twin, DOCUMENTS)
    flip(twin / "index.sqlite", META_BLOCK * seal.BLOCK_BYTES + 2_000)
    with pytest.raises(DamagedFile, match="its contents have changed since the last run"):
        index_documents(twin, [NEW])
    assert_reported(twin)


def assert_reported(folder: Path) -> None:
    """Assert that verify reports damage to index.sqlite, even after another run that fails."""
    with pytest.raises(KeyError), open_for_writing(folder):
        raise KeyError
    assert [(found.file, found.repair) for found in verify_index(folder)] == [("index.sqlite", INDEX_AGAIN)]


def test_damage_to_the_last_block_is_not_sealed_by_a_writer_of_another_block_or_one_that_fails(tmp_path: Path) -> None:
    file = tmp_path / "index.sqlite"
    file.write_bytes(os.urandom(3 * seal.BLOCK_BYTES + 5))
    with renew_seal(tmp_path):
        pass
    assert check_seal(tmp_path) == "intact"
    flip(file, 3 * seal.BLOCK_BYTES)
    with pytest.raises(KeyError), renew_seal(tmp_path):
        raise KeyError
    assert check_seal(tmp_path) == "damaged"
    with renew_seal(tmp_path) as sealing:
        sealing.check_and_record([1], 4_096)
        flip(file, 7)
    assert check_seal(tmp_path) == "damaged"


def test_an_error_of_another_sqlite_file_is_not_taken_for_damage_to_the_index(tmp_path: Path) -> None:
    index_documents(tmp_path / "i", [NEW])
    (tmp_path / "other").write_bytes(b"not a database " * 1_000)
    with (
        pytest.raises(sqlite3.DatabaseError, match="not a database"),
        closing(sqlite3.connect(tmp_path / "other")) as other,
        open_for_writing(tmp_path / "i") as store,
    ):
        with store.transaction():
            store.set_meta("note", "new")
        other.execute("SELECT * FROM notes")
    assert check_seal(tmp_path / "i") == "unfinished"


@pytest.mark.long
def test_pages_that_sqlite_cannot_read_are_reported_and_never_sealed(index: Path) -> None:
    file = index / "index.sqlite"
    with closing(sqlite3.connect(file)) as database:
        (root,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'summaries'").fetchone()
    data = bytearray(file.read_bytes())
    data[(root - 1) * 4_096] = 0
    file.write_bytes(data)
    more = [NEW, *(replace(document, source=f"{document.source} again") for document in DOCUMENTS)]
    for attempt in (lambda: index_status(index), lambda: index_documents(index, more)):
        with pytest.raises(DamagedFile, match=r"index\.sqlite: SQLite cannot read it"):
            attempt()
        assert_reported(index)


@pytest.mark.long
def test_a_writer_that_changes_nothing_leaves_the_seal_unchanged(index: Path) -> None:
    before = (index / "index.sqlite.seal").read_text()
    with pytest.raises(KeyError), open_for_writing(index):
        raise KeyError
    assert (index / "index.sqlite.seal").read_text() == before and verify_index(index) == []
