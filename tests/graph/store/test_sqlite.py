"""Damage to index.sqlite, the file of an index's rows, and settings that are missing in it."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from graph.build.stores import open_store
from graph.errors import DamagedFile, UserError
from graph.store.sqlite import SqliteStore, read_sqlite_settings
from graph.types import Document


def write_meta(folder: Path, rows: list[tuple[str, str]]) -> None:
    with closing(sqlite3.connect(folder / "index.sqlite")) as database, database:
        database.execute("CREATE TABLE meta (key TEXT, value TEXT)")
        database.executemany("INSERT INTO meta VALUES (?, ?)", rows)


def test_damaged_settings_are_reported(tmp_path: Path) -> None:
    write_meta(tmp_path, [("settings", "{")])
    with pytest.raises(UserError, match=r"index\.sqlite: not readable"):
        read_sqlite_settings(tmp_path)


def test_a_file_whose_first_run_stored_nothing_has_no_settings(tmp_path: Path) -> None:
    (tmp_path / "index.sqlite").touch()
    assert read_sqlite_settings(tmp_path) is None
    write_meta(tmp_path, [])
    assert read_sqlite_settings(tmp_path) is None


def test_a_text_that_is_not_utf8_is_reported_as_damage(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path)) as store:
        store.put_document(Document("tarn", "Tarn", "Tarn is a village."), "")
    with closing(sqlite3.connect(tmp_path / "index.sqlite")) as database, database:
        database.execute("UPDATE documents SET text = CAST(x'ff' AS TEXT)")
    with pytest.raises(DamagedFile, match="SQLite cannot read it") as raised, open_store(tmp_path) as store:
        store.document("tarn")
    assert "Could not decode to UTF-8" in str(raised.value.__cause__)
