"""An indexer with a model, killed (SIGKILL) before and after commits, after stored calls and at random moments: no completed call is
made again, and the final index equals that of an undisturbed run."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

from graph.build.lifecycle import index_status, verify_index
from graph.postgres.connect import dsn_of
from graph.store.arrays import load_arrays
from graph.store.data import IndexData
from graph.store.index_settings import has_database
from tests.fakes import ChatServer, chat_server, extraction_reply, is_extraction, requested_passage
from tests.graph.build.conftest import Place
from tests.graph.build.crash_child import DOCUMENTS
from tests.graph.same import assert_same_index
from tests.places import ROOT

BAD_ONCE, BAD_ALWAYS = {"Ship 1", "Ship 6"}, {"Ship 6"}
CALLS = 1 + len(DOCUMENTS) + len(BAD_ONCE)
RANDOM_KILLS = 2


def reply_to(body: dict[str, Any], number: int) -> str:
    """The same reply to the same request in every run; different requests get different replies."""
    if is_extraction(body):
        title, _ = requested_passage(body)
        again = len(body["messages"]) == 4
        if title in BAD_ALWAYS or (title in BAD_ONCE and not again):
            return f"sorry, {title}{' again' * again}"
    return extraction_reply(body)


class ForkServer:
    """A process that forks indexers on request (crash_child.py)."""

    def __init__(self, server: ChatServer) -> None:
        self.server = server
        self._process = subprocess.Popen(
            [sys.executable, str(ROOT / "tests/graph/build/crash_child.py")],
            env={**os.environ, "PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, folder: Path, event: str = "", nth: int = 0, kill_after_s: float | None = None) -> bool:
        """Run an indexer, assert that it made no call that was already in the ledger, and return whether it was killed."""
        completed = stored_replies(folder)
        self.server.requests.clear()
        assert self._process.stdin and self._process.stdout
        job = {"folder": str(folder), "url": self.server.url, "event": event, "nth": nth, "kill_after_s": kill_after_s}
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        status = int(self._process.stdout.readline())
        assert status in (0, signal.SIGKILL)
        assert not completed & {reply_to(body, 0) for body in self.server.requests}, "a completed call was made again"
        return status != 0

    def close(self) -> None:
        self._process.communicate()


def stored_replies(folder: Path) -> set[str]:
    """The replies in the ledger."""
    if has_database(folder):
        with psycopg.connect(dsn_of(folder)) as connection:
            return {text for (text,) in connection.execute("SELECT text FROM modegraph_index.calls")}
    if not (folder / "ledger.sqlite").exists():
        return set()
    ledger = sqlite3.connect(folder / "ledger.sqlite")
    try:
        return {text for (text,) in ledger.execute("SELECT text FROM calls")}
    except sqlite3.OperationalError:  # killed before the table was created
        return set()
    finally:
        ledger.close()


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    with chat_server(reply_to) as server:
        fork_server = ForkServer(server)
        yield fork_server
        fork_server.close()


@pytest.fixture(scope="module")
def undisturbed_index(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "i"
    assert not fork_server.run(folder)
    assert len(fork_server.server.requests) == CALLS == len(stored_replies(folder))
    return folder


def assert_equals_undisturbed(folder: Path, undisturbed_index: Path) -> None:
    assert_same_index(load_arrays(folder, IndexData), load_arrays(undisturbed_index, IndexData))
    assert index_status(folder).rows == index_status(undisturbed_index).rows
    assert index_status(folder).quarantined == 1 and verify_index(folder) == []


KILLS: Counter[str] = Counter()


@pytest.mark.slow
@pytest.mark.parametrize(("place", "step"), [("sqlite", 2), ("postgresql", 4)], indirect=["place"])
def test_an_indexer_killed_after_a_commit_ends_like_an_undisturbed_run(
    fork_server: ForkServer, undisturbed_index: Path, tmp_path: Path, place: Place, step: int
) -> None:
    """Every second commit is tested; in PostgreSQL every fourth, because a run takes twice as long there."""
    for commit in count(1, step):
        place(folder := tmp_path / str(commit))
        if not fork_server.run(folder, "commit", commit):
            break
        KILLS["commit"] += 1
        assert not fork_server.run(folder)
        assert_equals_undisturbed(folder, undisturbed_index)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "event", "max_nth"),
    [
        ("sqlite", "stored call", 1),
        ("sqlite", "stored call", 2),
        ("sqlite", "before commit", 6),
        ("sqlite", "before commit", 7),
        ("postgresql", "stored call", 2),
        ("postgresql", "before commit", 6),
    ],
    indirect=["place"],
)
def test_an_indexer_killed_repeatedly_ends_like_an_undisturbed_run(
    fork_server: ForkServer, undisturbed_index: Path, tmp_path: Path, place: Place, event: str, max_nth: int
) -> None:
    place(tmp_path / "i")
    while fork_server.run(tmp_path / "i", event, nth=1 + KILLS[event] % max_nth):
        KILLS[event] += 1
        assert KILLS[event] <= 90, "no progress between kills"
    assert_equals_undisturbed(tmp_path / "i", undisturbed_index)


@pytest.mark.slow
@pytest.mark.parametrize(("place", "seed"), [("sqlite", 0), ("sqlite", 1), ("postgresql", 2)], indirect=["place"])
def test_an_indexer_killed_at_random_moments_ends_like_an_undisturbed_run(
    fork_server: ForkServer, undisturbed_index: Path, tmp_path: Path, place: Place, seed: int
) -> None:
    place(tmp_path / "timed")
    started = time.monotonic()
    fork_server.run(tmp_path / "timed")
    duration_s = time.monotonic() - started
    chance = random.Random(seed)
    kills = 0
    for index in count():
        place(folder := tmp_path / str(index))
        while fork_server.run(folder, kill_after_s=chance.uniform(0, duration_s)):
            kills += 1
        assert_equals_undisturbed(folder, undisturbed_index)
        if kills >= RANDOM_KILLS:
            break
    KILLS["random"] += kills


@pytest.mark.slow
def test_enough_indexers_were_killed() -> None:
    assert all(KILLS[event] >= 6 for event in ("commit", "stored call", "before commit", "random")), KILLS
