"""The same tests for an index in SQLite and for one with its rows in PostgreSQL."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path

import psycopg
import pytest

import graph.build.build
from graph.postgres.store.place import place_in_database
from tests.postgres_server import fresh_database

Place = Callable[[Path], None]
AT_ONCE = 4
"""Indexes that a test uses at the same time, at most: a later one takes the database of the one so many before it."""


@pytest.fixture(scope="session")
def databases(postgres: str) -> Iterator[Iterator[str]]:
    """Connection strings of databases, again and again."""
    with ExitStack() as made:
        yield cycle([made.enter_context(fresh_database(postgres, f"index{number}")) for number in range(AT_ONCE)])


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Makes a folder one whose rows will be in the kind of store that is tested; `build_index` calls it for every new folder."""
    if request.param == "sqlite":
        return lambda folder: None
    prepare = graph.build.build._prepare_folder

    def place(folder: Path) -> None:
        if not folder.exists():
            database = next(request.getfixturevalue("databases"))
            with psycopg.connect(database) as connection:
                connection.execute("DROP SCHEMA IF EXISTS modegraph_index CASCADE")
            place_in_database(folder, database)

    def prepared(folder: Path) -> bool:
        place(folder)
        return prepare(folder)

    monkeypatch.setattr(graph.build.build, "_prepare_folder", prepared)
    return place
