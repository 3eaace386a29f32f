"""Runs the same tests for an index in SQLite and for one with its rows in PostgreSQL: the fixture `place` and, for property tests, the decorator
`in_either_store`.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from typing import TypeVar

import psycopg
import pytest

import graph.build.build
from graph.postgres.schema import place_in_database
from tests.postgres_server import fresh_database

Place = Callable[[Path], None]
Test = TypeVar("Test", bound=Callable[..., None])
MAX_INDEXES_PER_TEST = 4
"""The most indexes that a test uses at the same time: each further index reuses the database of the oldest."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use PostgreSQL to run with `make test-machines`, because PostgreSQL is for indexes shared by several machines."""
    for item in items:
        call = getattr(item, "callspec", None)
        if call is not None and call.params.get("place") == "postgresql":
            item.add_marker(pytest.mark.machines)


@pytest.fixture(scope="session")
def databases(postgres: str) -> Iterator[Iterator[str]]:
    """An endless cycle of the connection strings of a few databases."""
    with ExitStack() as stack:
        yield cycle(
            [stack.enter_context(fresh_database(postgres, f"index{number}")) for number in range(MAX_INDEXES_PER_TEST)]
        )


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A function that prepares a new folder for rows in the store under test; with PostgreSQL, `build_index` calls it for every new folder."""
    if request.param == "sqlite":
        return lambda folder: None
    prepare = graph.build.build._prepare_folder

    def place(folder: Path) -> None:
        if not folder.exists():
            database = next(request.getfixturevalue("databases"))
            with psycopg.connect(database) as connection:
                connection.execute("DROP SCHEMA IF EXISTS modegraph_index CASCADE")
            place_in_database(folder, database)

    def place_and_prepare(folder: Path) -> bool:
        place(folder)
        return prepare(folder)

    monkeypatch.setattr(graph.build.build, "_prepare_folder", place_and_prepare)
    return place


def in_either_store(sqlite: int, postgresql: int) -> Callable[[Test], Test]:
    """Run a property test once for each kind of store; its argument `examples` is the number of examples for that store (PostgreSQL takes three times as
    long).
    """

    def parametrised(test: Test) -> Test:
        stores = [("sqlite", sqlite), ("postgresql", postgresql)]
        each = pytest.mark.parametrize(("place", "examples"), stores, indirect=["place"])
        return pytest.mark.usefixtures("place")(each(test))

    return parametrised
