"""Problems with a database are reported in one line that names the database and contains no password."""

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from graph.errors import UserError
from graph.postgres.connect import database_of, transaction
from modegraph.cli import build_app
from tests.places import ROOT

SECRET = "hunter2word"


def message_of(dsn: str) -> str:
    with pytest.raises(UserError) as caught, transaction(dsn):
        pass
    return str(caught.value)


def test_a_transaction_is_committed_or_rolled_back_as_a_whole(database: str) -> None:
    with transaction(database) as connection:
        connection.execute("CREATE TABLE stored (value int4)")
    with (
        pytest.raises(UserError, match=r'relation "stored" already exists\. Expected .*\. Nothing was changed;'),
        transaction(database) as connection,
    ):
        connection.execute("CREATE TABLE gone (value int4)")
        connection.execute("CREATE TABLE stored (value int4)")
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT to_regclass('stored'), to_regclass('gone')").fetchone() == ("stored", None)


def test_a_server_that_refuses_connections_or_does_not_answer_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graph.postgres.connect.CONNECT_S", 2)  # The shortest timeout that psycopg accepts.
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        line = message_of(f"postgresql://me:{SECRET}@127.0.0.1:{port}/docs")
        assert line.startswith(f"postgresql://me@127.0.0.1:{port}/docs: ") and "refused" in line
        assert line.endswith(". Expected a server that answers. Check the address, the role and its password")
        listening.listen()
        silent = message_of(f"host=127.0.0.1 port={port} user=me password='{SECRET} x'")
    assert "timeout" in silent
    for each in (line, silent):
        assert SECRET not in each and "\n" not in each


def test_a_missing_database_or_role_is_reported(database: str) -> None:
    assert 'database "none" does not exist' in message_of(database.rpartition("/")[0] + "/none")
    assert 'role "stranger" does not exist' in message_of(database.replace("postgres@", f"stranger:{SECRET}@"))


@pytest.mark.parametrize(
    "dsn",
    [
        f"postgresql://me:a@{SECRET}@host/docs",
        f"postgresql://me:a/{SECRET}@host/docs",
        f"postgresql://me:{SECRET}%zz@host/docs",
        f"postgresql://me:p@ss:{SECRET}@host/docs",
        f"me {SECRET}",
        f"pasword={SECRET} host=h",
    ],
)
def test_an_invalid_connection_string_is_reported_but_not_shown(dsn: str) -> None:
    line = message_of(dsn)
    assert line.startswith("the connection string cannot be read. Expected postgresql://USER@HOST/DATABASE")
    assert SECRET not in line and "PGPASSWORD" in line


def test_a_database_is_named_without_its_passwords_and_options() -> None:
    assert (
        database_of(f"postgresql://me:{SECRET}@db:5433/docs?sslpassword={SECRET}&options=-c%20a%3Db")
        == "postgresql://me@db:5433/docs"
    )
    assert (
        database_of("postgresql://") == "postgresql://" and database_of("service=live") == "postgresql://?service=live"
    )


def test_the_command_reports_a_refused_connection_without_the_password(hashed_isles: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        dsn = f"postgresql://me:{SECRET}@127.0.0.1:{closed.getsockname()[1]}/docs"
        result: Any = CliRunner().invoke(build_app(), ["export", str(hashed_isles), "--postgres", dsn])
    assert (
        isinstance(result.exception, UserError) and "refused" in str(result.exception) and SECRET not in result.output
    )


@pytest.mark.parametrize(
    "arguments", [["export", "index", "--postgres", "postgresql://"], ["copy", "index", "postgresql://"]]
)
def test_without_psycopg_the_extra_is_named(arguments: list[str]) -> None:
    script = "import sys; sys.modules['psycopg'] = None; from modegraph.cli import main; main()"
    command = [sys.executable, "-P", "-c", script, *arguments]
    result = subprocess.run(
        command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert result.returncode == 2 and result.stderr.count("\n") == 1
    assert result.stderr.endswith(". Expected the extra `scale`. pip install 'modegraph[scale]'\n")
