"""A small index of real text by the stand-in encoder, for the tests of commands that read one, and commands that open it so."""

import gc
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import graph.index.index
from graph.build.build import build_index
from graph.store.settings import IndexSettings
from tests.corpora import ISLES
from tests.fakes import HashEncoder
from tests.postgres_server import postgres_server

# No test is held to a time: on a busy machine an example takes what it takes. A run is repeatable: the same examples each time.
UNTIMED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("repeatable", derandomize=True, **UNTIMED)
# Other examples each time, to look for what nobody thought of: HYPOTHESIS_PROFILE=explore.
settings.register_profile("explore", **UNTIMED)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with a slow test first: of two processes, neither is left alone with one at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish() -> None:
    """Modules and tests live as long as the run: collections of garbage, which some code asks for at each step, need not walk through them."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def hashed_isles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the index; nothing may change it."""
    folder = tmp_path_factory.mktemp("hashed") / "index"
    build_index(folder, ISLES, IndexSettings(), lambda spec: HashEncoder())
    return folder


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The connection string of a PostgreSQL server's superuser."""
    with postgres_server() as dsn:
        yield dsn


@pytest.fixture
def open_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every index opens with the stand-in encoder."""
    opened = partial(graph.index.index.open_index, open_by_spec=lambda spec: HashEncoder())
    monkeypatch.setattr(graph.index.index, "open_index", opened)
