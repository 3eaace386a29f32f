"""For each test a database of its own with pgvector in it."""

from collections.abc import Iterator

import pytest

from tests.postgres_server import fresh_database


@pytest.fixture
def database(postgres: str) -> Iterator[str]:
    """The connection string of an empty database, as its superuser."""
    with fresh_database(postgres, "one", with_pgvector=True) as dsn:
        yield dsn


@pytest.fixture(scope="module")
def shared_database(postgres: str) -> Iterator[str]:
    """The same for all tests of a file, which leave it as they find it."""
    with fresh_database(postgres, "shared", with_pgvector=True) as dsn:
        yield dsn
