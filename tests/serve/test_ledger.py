import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from graph.errors import DiskFull, UserError
from graph.postgres.connect import dsn_of
from graph.postgres.schema import place_in_database
from graph.store.index_settings import has_database
from graph.store.ledger_file import LEDGER
from graph.types import CompletionRequest, Message
from serve.engines import open_model
from serve.ledger import Ledger, call_key
from tests.disks import AMPLE_BYTES, mounted_disk
from tests.fakes import ScriptedModel, chat_server
from tests.places import ROOT
from tests.postgres_server import fresh_database


def request_of(text: str) -> CompletionRequest:
    return CompletionRequest((Message("user", text),), max_tokens=9)


def echo(request: CompletionRequest) -> str:
    return "echo " + request.messages[-1].content


@pytest.fixture(params=["sqlite", "postgresql"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """The path of a ledger: an SQLite file, or, for an index stored in PostgreSQL, a path at which no file may be created."""
    if request.param == "sqlite":
        yield tmp_path / LEDGER
        return
    with fresh_database(request.getfixturevalue("postgres"), "ledger") as dsn:
        place_in_database(tmp_path / "index", dsn)
        yield tmp_path / "index" / LEDGER
        assert not (tmp_path / "index" / LEDGER).exists()


def rows_of(file: Path, statement: str = "SELECT key FROM calls") -> list[tuple[object, ...]]:
    """The rows that a statement on the stored calls returns."""
    if has_database(file.parent):
        with psycopg.connect(dsn_of(file.parent)) as connection:
            found = connection.execute(statement.replace("calls", "modegraph_index.calls"))
            return found.fetchall() if found.description else []
    with closing(sqlite3.connect(file)) as database, database:
        return database.execute(statement).fetchall()


def test_a_finished_call_is_never_repeated(file: Path) -> None:
    model = ScriptedModel(echo)
    ledger = Ledger(model, file)
    first = ledger.complete([request_of("a"), request_of("b"), request_of("a")])
    assert [one.text for one in first] == ["echo a", "echo b", "echo a"]
    assert len(model.requests) == 2

    reopened = Ledger(model, file)
    assert reopened.complete([request_of("b"), request_of("a")]) == [first[1], first[0]]
    assert len(model.requests) == 2


def test_a_truncated_text_is_returned_but_not_stored(file: Path) -> None:
    model = ScriptedModel(echo, finish_reason="length")
    ledger = Ledger(model, file)
    assert ledger.complete([request_of("a")])[0].finish_reason == "length"
    ledger.complete([request_of("a")])
    assert len(model.requests) == 2
    assert rows_of(file) == []


def test_everything_that_determines_a_completion_is_in_its_key() -> None:
    request = request_of("a")
    others = [
        replace(request, messages=(Message("system", "a"),)),
        replace(request, messages=(Message("user", "a"), Message("user", ""))),
        replace(request, max_tokens=10),
        replace(request, temperature=0.1),
        replace(request, seed=0),
        replace(request, schema={"type": "object"}),
    ]
    keys = {call_key("m", request), call_key("n", request), *(call_key("m", other) for other in others)}
    assert len(keys) == 2 + len(others)
    assert call_key("m", request_of("a")) == call_key("m", request)


def test_a_failing_call_loses_no_finished_call(file: Path) -> None:
    def reply(request: CompletionRequest) -> str:
        if request.messages[0].content == "bad":
            raise UserError("server gone", "", "")
        return echo(request)

    ledger = Ledger(ScriptedModel(reply), file)
    with pytest.raises(UserError, match="server gone"):
        ledger.complete([request_of("a"), request_of("b"), request_of("bad")])
    again = ScriptedModel(echo)
    Ledger(again, file).complete([request_of("a"), request_of("b"), request_of("bad")])
    assert again.requests == [request_of("bad")]


def test_a_batching_model_gets_full_batches(tmp_path: Path) -> None:
    sizes: list[int] = []

    class RecordsBatchSizes(ScriptedModel):
        def complete(self, requests):  # type: ignore[no-untyped-def]
            sizes.append(len(requests))
            return super().complete(requests)

    ledger = Ledger(RecordsBatchSizes(echo, batch_size=4), tmp_path / "ledger.sqlite")
    assert [one.text for one in ledger.complete([request_of(str(n)) for n in range(10)])] == [
        f"echo {n}" for n in range(10)
    ]
    assert sorted(sizes) == [2, 4, 4]


def test_threads_and_a_second_ledger_share_a_file(file: Path) -> None:
    ledgers = [Ledger(ScriptedModel(echo), file) for _ in range(2)]
    with ThreadPoolExecutor(8) as pool:
        texts = list(pool.map(lambda n: ledgers[n % 2].complete([request_of(str(n // 4))])[0].text, range(200)))
    assert texts == [f"echo {n // 4}" for n in range(200)]
    assert len(rows_of(file)) == 50


def test_two_equal_simultaneous_calls_get_the_same_reply(file: Path) -> None:
    barrier = threading.Barrier(2, timeout=20)

    def ledger(text: str) -> Ledger:
        return Ledger(ScriptedModel(lambda request: (barrier.wait(), text)[1]), file)

    with ThreadPoolExecutor(2) as pool:
        one, two = pool.map(lambda text: ledger(text).complete([request_of("q")])[0].text, ["red", "blue"])
    assert one == two


def test_a_changed_row_is_dropped_and_its_call_repeated(file: Path) -> None:
    Ledger(ScriptedModel(echo), file).complete([request_of("a"), request_of("b")])
    rows_of(file, "UPDATE calls SET text = 'forged' WHERE text = 'echo a'")
    again = ScriptedModel(echo)
    assert [one.text for one in Ledger(again, file).complete([request_of("a"), request_of("b")])] == [
        "echo a",
        "echo b",
    ]
    assert again.requests == [request_of("a")] and len(rows_of(file)) == 2


@pytest.mark.parametrize("file", ["postgresql"], indirect=True)
def test_a_request_is_repeated_when_postgresql_has_dropped_the_connection(file: Path) -> None:
    ledger = Ledger(ScriptedModel(echo), file)
    ledger.complete([request_of("a")])
    rows_of(file, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'modegraph'")
    assert [one.text for one in ledger.complete([request_of("a"), request_of("b")])] == ["echo a", "echo b"]
    assert len(rows_of(file)) == 2


@pytest.mark.parametrize("file", ["postgresql"], indirect=True)
def test_a_reply_that_postgresql_cannot_store_is_returned_but_not_stored(file: Path) -> None:
    assert Ledger(ScriptedModel(lambda request: "a\0b"), file).complete([request_of("a")])[0].text == "a\0b"
    assert rows_of(file) == []


def test_a_reply_with_half_a_character_is_returned_but_not_stored(file: Path) -> None:
    ledger = Ledger(ScriptedModel(lambda request: "a\ud83d" if request == request_of("a") else "b"), file)
    assert [each.text for each in ledger.complete([request_of("a"), request_of("b")])] == ["a\ud83d", "b"]
    assert rows_of(file) == [(call_key("scripted", request_of("b")),)]


def test_a_file_that_is_not_a_ledger_is_refused_and_left_unchanged(tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("my notes, of more than sixteen bytes\n" * 40)
    with pytest.raises(UserError, match=r"notes\.txt: not a call ledger"):
        Ledger(ScriptedModel(echo), notes)
    assert notes.read_text().startswith("my notes")


def test_a_damaged_ledger_outside_an_index_is_refused_and_named(tmp_path: Path) -> None:
    """Only the damaged ledger of an index is replaced: a damaged file elsewhere may be something else."""
    file, model = tmp_path / "calls.sqlite", ScriptedModel(lambda request: "x" * 3_000)
    requests = [request_of(str(number)) for number in range(50)]
    Ledger(model, file).complete(requests)
    rows_of(file, "PRAGMA wal_checkpoint(TRUNCATE)")
    data = file.read_bytes()
    file.write_bytes(data[: 4096 * 10] + b"\xff" * (len(data) - 4096 * 10))
    with pytest.raises(UserError, match=r"calls\.sqlite: not a call ledger \(database disk image is malformed\)"):
        Ledger(model, file).complete(requests)


def test_a_file_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(UserError, match=r"/proc/self/mem: not usable as a call ledger"):
        Ledger(ScriptedModel(echo), Path("/proc/self/mem"))


CHILD = """
import sys
from pathlib import Path
from graph.types import CompletionRequest, Message
from serve.engines import open_model
ledger = open_model(sys.argv[1], Path(sys.argv[2]))
for number in range(6):
    ledger.complete([CompletionRequest((Message("user", str(number)),), max_tokens=9)])
    print("done", number, flush=True)
"""


def test_a_killed_process_repeats_no_finished_call(file: Path) -> None:
    release = threading.Event()

    def reply(body: dict[str, object], number: int) -> str:
        if number == 4:
            release.wait(30)
        return f"call {number}"

    with chat_server(reply) as server:
        spec = f"openai:m@{server.url}"
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, spec, str(file)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        assert [child.stdout.readline().strip() for _ in range(3)] == ["done 0", "done 1", "done 2"]
        while len(server.requests) < 4:
            time.sleep(0.01)
        child.send_signal(signal.SIGKILL)
        child.wait()
        release.set()
        requests = [request_of(str(number)) for number in range(6)]
        completions = open_model(spec, file).complete(requests)
        assert [one.text for one in completions[:3]] == ["call 1", "call 2", "call 3"]
        again = [body["messages"][0]["content"] for body in server.requests[4:]]
        assert sorted(again) == ["3", "4", "5"]


def test_a_full_disk_is_not_reported_as_a_damaged_ledger(tmp_path: Path) -> None:
    with mounted_disk(tmp_path / "disk") as disk:
        file, model = disk.folder / LEDGER, ScriptedModel(lambda request: "x" * 9_000)
        ledger = Ledger(model, file)
        ledger.complete([request_of("before")])
        disk.leave_free(0)
        with pytest.raises(
            DiskFull,
            match=r"ledger\.sqlite: no free space \(database or disk is full\)\. Expected a disk with free space\. Free",
        ):
            ledger.complete([request_of("lost")])
        disk.leave_free(AMPLE_BYTES)
        assert [each.text for each in Ledger(model, file).complete([request_of("before"), request_of("lost")])] == [
            "x" * 9_000
        ] * 2
        assert [request.messages[-1].content for request in model.requests] == ["before", "lost", "lost"]
