"""The same tests for an index in SQLite and for one with its rows in PostgreSQL."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

import graph.build.build
from graph.postgres.store.place import place_in_database
from tests.postgres_server import fresh_database

Place = Callable[[Path], None]
NUMBERS = count()


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Makes a folder one whose rows will be in the kind of store that is tested; `build_index` calls it for every new folder."""
    if request.param == "sqlite":
        yield lambda folder: None
        return
    prepare = graph.build.build._prepare_folder
    with ExitStack() as databases:

        def place(folder: Path) -> None:
            if not folder.exists():
                server = request.getfixturevalue("postgres")
                place_in_database(folder, databases.enter_context(fresh_database(server, f"index{next(NUMBERS)}")))

        def prepared(folder: Path) -> bool:
            place(folder)
            return prepare(folder)

        monkeypatch.setattr(graph.build.build, "_prepare_folder", prepared)
        yield place
