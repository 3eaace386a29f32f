"""A separate database with pgvector for each test, or for each file."""

from collections.abc import Iterator

import pytest

from tests.postgres_server import fresh_database


@pytest.fixture
def database(postgres: str) -> Iterator[str]:
    """The superuser's connection string for an empty database."""
    with fresh_database(postgres, "one", with_pgvector=True) as dsn:
        yield dsn


@pytest.fixture(scope="module")
def shared_database(postgres: str) -> Iterator[str]:
    """The superuser's connection string for a database that all tests of a file share."""
    with fresh_database(postgres, "shared", with_pgvector=True) as dsn:
        yield dsn
