"""Settings that are damaged or missing in index.sqlite, the file of an index's rows, are reported."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from graph.errors import UserError
from graph.store.sqlite import read_sqlite_settings


@pytest.mark.parametrize("settings", ["{", None])
def test_settings_that_are_damaged_or_missing_are_reported(settings: str | None, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "index.sqlite")) as database, database:
        database.execute("CREATE TABLE meta (key TEXT, value TEXT)")
        if settings is not None:
            database.execute("INSERT INTO meta VALUES ('settings', ?)", (settings,))
    with pytest.raises(UserError, match=r"index\.sqlite: not readable"):
        read_sqlite_settings(tmp_path)
