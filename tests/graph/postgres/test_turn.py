"""Writers of one index on several machines take turns in order of arrival, through leases; a dead or sleeping writer blocks no other, and none writes
after losing its turn.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Thread

import psycopg
import pytest

import graph.postgres.turn
from graph.build.build import build_index
from graph.build.lifecycle import index_status, verify_index
from graph.errors import UserError
from graph.postgres.schema import place_in_database
from graph.postgres.store import PostgresStore
from graph.postgres.turn import writers_turn
from graph.store.arrays import load_arrays
from graph.store.data import IndexData
from graph.store.index_settings import IndexSettings
from graph.store.lock import IndexBusy
from graph.store.manifest import read_manifest
from graph.types import Document
from tests.corpora import ISLES
from tests.graph.hashed import encoder
from tests.graph.same import assert_same_index
from tests.graph.store.test_lock import wait_for

SETTINGS = IndexSettings(min_similarity=0.1)
LEASES = "modegraph_index.leases"


def count_leases(database: str) -> int:
    with psycopg.connect(database) as connection:
        return connection.execute(f"SELECT count(*) FROM {LEASES}").fetchone()[0]  # type: ignore[index]


def test_writers_write_one_at_a_time_in_order_of_arrival(database: str, tmp_path: Path) -> None:
    order: list[int] = []

    def write(number: int) -> None:
        with writers_turn(database, tmp_path):
            order.append(number)
            time.sleep(0.05)
            assert order[-1] == number

    with writers_turn(database, tmp_path) as first:
        threads = []
        for number in range(4):
            threads.append(Thread(target=write, args=(number,)))
            threads[-1].start()
            wait_for(lambda: count_leases(database) == len(threads) + 1)
        assert order == []
    for thread in threads:
        thread.join(60)
    assert order == [0, 1, 2, 3] and count_leases(database) == 0
    with writers_turn(database, tmp_path) as last:
        assert last.fence == first.fence + 5, "no fence should be used twice"


def test_giving_up_names_the_current_writer_and_leaves_the_queue(database: str, tmp_path: Path) -> None:
    with writers_turn(database, tmp_path):
        with (
            pytest.raises(IndexBusy, match=rf"being written by process {os.getpid()} of .*\. Expected one writer"),
            writers_turn(database, tmp_path, give_up=lambda: True),
        ):
            pass
        assert count_leases(database) == 1


@pytest.mark.parametrize("cause", ["expired", "its process is gone"])
def test_an_expired_lease_or_a_dead_writer_blocks_no_other_writer(database: str, tmp_path: Path, cause: str) -> None:
    with writers_turn(database, tmp_path):
        pass
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    machine, seconds = ("another", -1) if cause == "expired" else (graph.postgres.turn._machine(), 3600)
    with psycopg.connect(database) as connection:
        values = f"('w', %s, %s, now() + make_interval(secs => {seconds}))"
        statement = f"INSERT INTO {LEASES} (writer, machine, process, expires_at) VALUES {values}"
        connection.execute(statement, (machine, dead.pid))
    with writers_turn(database, tmp_path, give_up=lambda: True):
        assert count_leases(database) == 1


def test_a_lease_in_use_does_not_pass_to_another_writer_even_when_it_has_expired(database: str, tmp_path: Path) -> None:
    with writers_turn(database, tmp_path) as turn, psycopg.connect(database) as writing:
        with psycopg.connect(database) as connection:
            connection.execute(f"UPDATE {LEASES} SET expires_at = now() - interval '1 s', machine = ''")
        with writing.transaction():
            turn.renew(writing)
            with pytest.raises(IndexBusy), writers_turn(database, tmp_path, give_up=lambda: True):
                pass
        turn.renew(writing)


def test_a_writer_that_stops_in_the_middle_of_a_transaction_is_disconnected(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place_in_database(tmp_path / "index", database)
    monkeypatch.setattr("graph.postgres.turn.LEASE_S", 0.2)
    monkeypatch.setitem(graph.postgres.turn.LIMITS, "idle_in_transaction_session_timeout", "'0.3s'")
    with writers_turn(database, tmp_path) as turn, closing(PostgresStore(database, turn)) as store:
        with psycopg.connect(database) as connection:
            connection.execute(f"UPDATE {LEASES} SET machine = ''")
        with pytest.raises(UserError, match="idle-in-transaction timeout"), store.transaction():
            store.set_meta("extractor", "rules")
            with writers_turn(database, tmp_path):
                pass
            store.set_meta("extractor", "llm")
    with closing(PostgresStore(database)) as store:
        assert store.get_meta("extractor") is None


def test_a_writer_that_reads_a_file_for_longer_than_the_idle_limit_is_not_disconnected(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place_in_database(tmp_path / "index", database)
    monkeypatch.setattr("graph.postgres.turn.STATEMENT_S", 0.1)
    monkeypatch.setitem(graph.postgres.turn.LIMITS, "idle_in_transaction_session_timeout", "'1s'")
    with writers_turn(database, tmp_path) as turn, closing(PostgresStore(database, turn)) as store:
        with store.transaction():
            store.set_meta("extractor", "rules")
            time.sleep(2)
        assert store.get_meta("extractor") == "rules"


WRITER = """
import sys, time
from pathlib import Path
import graph.postgres.turn
graph.postgres.turn.LEASE_S = 1.0
from graph.build.build import build_index
from graph.errors import UserError
from graph.types import Document
from tests.fakes import HashEncoder
from tests.graph.postgres.test_turn import SETTINGS
at = sys.argv[2]
def wait():
    Path(sys.argv[3]).touch()
    while not Path(sys.argv[4]).exists():
        time.sleep(.01)
class WaitingEncoder(HashEncoder):
    def encode(self, texts):
        if at == "encoding":
            wait()
        return super().encode(texts)
import graph.build.build
save = graph.build.build.save_arrays
def saving(*arguments, **named):
    saved = save(*arguments, **named)
    if at == "publishing":
        wait()
    return saved
graph.build.build.save_arrays = saving
try:
    build_index(Path(sys.argv[1]), [Document("late", "Late", "The Late of Tarn was sold in 1911.")], SETTINGS, lambda spec: WaitingEncoder())
except UserError as problem:
    print(problem)
    sys.exit(2)
"""


@contextmanager
def sleeping_writer(folder: Path, at: str, tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A writer that is stopped while it encodes or just before it publishes; it continues when the `with` block ends."""
    here, go_on = tmp_path / "here", tmp_path / "go-on"
    command = [sys.executable, "-P", "-c", WRITER, str(folder), at, str(here), str(go_on)]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    wait_for(lambda: here.exists() or writer.poll() is not None)
    writer.send_signal(signal.SIGSTOP)
    try:
        yield writer
    finally:
        go_on.touch()
        writer.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("at", ["encoding", "publishing"])
def test_a_writer_that_slept_past_its_lease_is_refused_and_nothing_is_lost(
    at: str, database: str, tmp_path: Path
) -> None:
    folder = tmp_path / "index"
    place_in_database(folder, database)
    build_index(folder, ISLES, SETTINGS, encoder)
    new = Document("new", "New", "The New of Quill was built in 1912.")
    with sleeping_writer(folder, at, tmp_path) as writer:
        build_index(folder, [new], SETTINGS, encoder)
        published = read_manifest(folder)
    output, _ = writer.communicate(timeout=60)
    assert writer.returncode == 2 and "wrote nothing; continue with: modegraph resume" in output
    assert read_manifest(folder) == published and verify_index(folder) == [] and count_leases(database) == 0
    late = Document("late", "Late", "The Late of Tarn was sold in 1911.")
    build_index(tmp_path / "twin", [*ISLES, late, new], SETTINGS, encoder)
    assert_same_index(load_arrays(folder, IndexData), load_arrays(tmp_path / "twin", IndexData))
    assert index_status(folder).rows == index_status(tmp_path / "twin").rows
