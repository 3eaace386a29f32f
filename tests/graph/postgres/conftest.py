"""One server for the session, and for each test a database of its own with pgvector in it."""

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from tests.postgres_server import postgres_server


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The connection string of the server's superuser."""
    with postgres_server() as dsn:
        yield dsn


@pytest.fixture
def database(postgres: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """The connection string of an empty database, as its superuser."""
    yield from fresh_database(postgres, "one")


@pytest.fixture(scope="module")
def shared_database(postgres: str) -> Iterator[str]:
    """The same for all tests of a file, which leave it as they find it."""
    yield from fresh_database(postgres, "shared")


def fresh_database(postgres: str, name: str) -> Iterator[str]:
    dsn = postgres.rpartition("/")[0] + f"/{name}"
    with psycopg.connect(postgres, autocommit=True) as server:
        server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        with psycopg.connect(dsn) as connection:
            connection.execute("CREATE SCHEMA extensions; CREATE EXTENSION vector SCHEMA extensions")
            connection.execute(f"ALTER DATABASE {name} SET search_path = public, extensions")
        yield dsn
        server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
