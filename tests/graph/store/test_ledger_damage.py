"""A call ledger whose bytes change or are cut off, or whose process is killed: it returns no wrong reply, no file is deleted, and one line reports what
was done.
"""

import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from graph.build.build import build_index
from graph.build.lifecycle import delete_documents, repair_index, verify_index
from graph.store.index_settings import IndexSettings
from graph.store.ledger_file import DAMAGED_SUFFIX, ILLEGIBLE, LEDGER, ledger_damage, renew_ledger
from graph.types import CompletionRequest, Document, Message
from modegraph.cli import open_model
from serve.ledger import Ledger
from tests.fakes import ChatServer, ScriptedModel, chat_server, extraction_reply
from tests.graph.damage import flipped
from tests.graph.hashed import encoder
from tests.places import ROOT

CALLS = 60
REQUESTS = [CompletionRequest((Message("user", str(number)),), max_tokens=9) for number in range(CALLS)]


def reply(request: CompletionRequest) -> str:
    """A text of 9 to 11,010 bytes, so that some replies share a page of the file and others span several."""
    number = int(request.messages[0].content)
    return f"Reply {number}: " + "Söderlaun " * ((number % 11) ** 3)


@pytest.fixture(scope="module")
def ledger_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The contents of a closed ledger with the replies to all requests."""
    file = tmp_path_factory.mktemp("whole") / LEDGER
    assert calls_needed(file.parent) == CALLS
    assert not Path(f"{file}-wal").exists()
    return file.read_bytes()


def calls_needed(folder: Path) -> int:
    """Make all requests through the ledger in a folder, check every reply, and close the ledger; return how many calls reached the model."""
    model = ScriptedModel(reply)
    ledger = Ledger(model, folder / LEDGER)
    completions = ledger.complete(REQUESTS)
    ledger._calls._database.close()  # type: ignore[attr-defined]
    assert [completion.text for completion in completions] == [reply(request) for request in REQUESTS]
    return len(model.requests)


def test_a_flipped_byte_gives_no_wrong_reply_and_in_most_places_costs_at_most_one_call(
    ledger_bytes: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = [20, 24, 40, 100, 103, 105, 4096, 4099, *range(4200, len(ledger_bytes), len(ledger_bytes) // 40)]
    counts = []
    for number, place in enumerate(places):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / LEDGER).write_bytes(flipped(ledger_bytes, place))
        counts.append(calls_needed(folder))
        message = capsys.readouterr().err
        renamed = list(folder.glob(f"*{DAMAGED_SUFFIX}"))
        assert counts[-1] == 0 or "a row was altered" in message or renamed or ledger_damage(folder), (
            f"byte {place}: {counts[-1]} calls repeated; expected a message, a renamed ledger or reported damage"
        )
        assert not renamed or (renamed[0].stat().st_size > 0 and "damaged; renamed to ledger.sqlite.damaged" in message)
    assert sum(count == 0 for count in counts) > 5 and sum(count <= 1 for count in counts) > len(places) // 2


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.6, 0.95, 0.98, 0.99, 0.999])
def test_calls_lost_from_a_truncated_ledger_are_repeated_once_and_it_can_be_renewed(
    ledger_bytes: bytes, tmp_path: Path, share: float
) -> None:
    beginning = ledger_bytes[: int(len(ledger_bytes) * share)]
    (tmp_path / LEDGER).write_bytes(beginning)
    assert calls_needed(tmp_path) <= CALLS and calls_needed(tmp_path) == 0
    if ledger_damage(tmp_path):
        renew_ledger(tmp_path / LEDGER)
    assert ledger_damage(tmp_path) == "" and calls_needed(tmp_path) == 0
    assert not 0.01 <= share <= 0.6 or (tmp_path / (LEDGER + DAMAGED_SUFFIX)).stat().st_size > 0


def test_a_file_that_is_not_a_database_is_renamed_each_time(tmp_path: Path) -> None:
    for name in (LEDGER + DAMAGED_SUFFIX, LEDGER + DAMAGED_SUFFIX + "2", LEDGER + DAMAGED_SUFFIX + "3"):
        (tmp_path / LEDGER).write_bytes(name.encode() * 400)
        assert calls_needed(tmp_path) == CALLS
        assert (tmp_path / name).read_bytes() == name.encode() * 400


CHILD = """
import sys
from pathlib import Path
import graph.store.ledger_file as ledger_file
moves, replace = int(sys.argv[2]), Path.replace
def replace_or_wait(file, target):
    global moves
    if not moves:
        print("here", flush=True)
        sys.stdin.read()
    moves -= 1
    return replace(file, target)
Path.replace = replace_or_wait
ledger_file.renew_ledger(Path(sys.argv[1]))
"""


@pytest.mark.parametrize("moves", [0, 1])
def test_a_kill_while_a_ledger_is_renamed_deletes_nothing(ledger_bytes: bytes, tmp_path: Path, moves: int) -> None:
    damaged = flipped(ledger_bytes, 0)
    (tmp_path / LEDGER).write_bytes(damaged)
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path / LEDGER), str(moves)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None and child.stdout.readline() == b"here\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    calls_needed(tmp_path)
    assert calls_needed(tmp_path) == 0 and ledger_damage(tmp_path) == ""
    assert damaged in [file.read_bytes() for file in tmp_path.glob(f"*{DAMAGED_SUFFIX}*")]


SHIPS = [
    Document(f"d{n:03}", f"Ship {n}", f"Ship {n} was built in {1800 + n} by the yard of Quill and sailed to Tarn.")
    for n in range(24)
]


def build(folder: Path, server: ChatServer) -> int:
    """Index all documents; return how many calls reached the model."""
    server.requests.clear()
    settings = IndexSettings(extractor="llm", extractor_model=f"openai:m@{server.url}", infer_domain=False)
    build_index(folder, SHIPS, settings, encoder, open_model)
    assert verify_index(folder) == []
    return len(server.requests)


@pytest.fixture(scope="module")
def server() -> Iterator[ChatServer]:
    with chat_server(lambda body, number: extraction_reply(body)) as running:
        yield running


@pytest.fixture(scope="module")
def index_with_spare_calls(tmp_path_factory: pytest.TempPathFactory, server: ChatServer) -> Path:
    """An index of the first document only, whose ledger contains the calls for all documents."""
    folder = tmp_path_factory.mktemp("index_with_spare_calls") / "i"
    build(folder, server)
    delete_documents(folder, [document.source for document in SHIPS[1:]], encoder, open_model)
    return folder


def change_row(data: bytes) -> bytes:
    """Change one row, and any old copy of it that SQLite left in a page's free space."""
    assert b"Ship 13 was built" in data
    return data.replace(b"Ship 13 was built", b"Ship 14 was built")


@pytest.mark.parametrize("repaired", [False, True])
@pytest.mark.parametrize(
    ("damage", "problem", "fewest", "most"),
    [
        (change_row, "changed rows: 1", 1, 1),
        (lambda data: flipped(data, 0), "SQLite cannot read it", len(SHIPS) - 1, len(SHIPS) - 1),
        (lambda data: data[: len(data) * 4 // 5], "SQLite cannot read it", 1, len(SHIPS) - 1),
    ],
)
def test_ledger_damage_is_reported_and_lost_calls_are_repeated_with_or_without_repair(
    index_with_spare_calls: Path,
    server: ChatServer,
    tmp_path: Path,
    damage: Callable[[bytes], bytes],
    problem: str,
    fewest: int,
    most: int,
    repaired: bool,
) -> None:
    folder = shutil.copytree(index_with_spare_calls, tmp_path / "i")
    damaged = damage((folder / LEDGER).read_bytes())
    (folder / LEDGER).write_bytes(damaged)
    assert [(found.file, found.problem) for found in verify_index(folder)] == [(LEDGER, problem)]
    if repaired:
        assert [found.file for found in repair_index(folder, encoder, open_model)] == [LEDGER]
        assert verify_index(folder) == [] and (folder / (LEDGER + DAMAGED_SUFFIX)).read_bytes() == damaged
    assert fewest <= build(folder, server) <= most


def test_a_ledger_with_other_columns_is_reported_and_renewed(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / LEDGER)) as database, database:
        database.execute("CREATE TABLE calls (key TEXT PRIMARY KEY, text TEXT)")
        database.execute("INSERT INTO calls VALUES ('k', 'Tarn')")
    assert ledger_damage(tmp_path) == ILLEGIBLE
    assert "0 intact calls" in renew_ledger(tmp_path / LEDGER)
    assert ledger_damage(tmp_path) == "" and Path(f"{tmp_path / LEDGER}{DAMAGED_SUFFIX}").is_file()


def test_a_ledger_is_renamed_together_with_its_write_ahead_log(tmp_path: Path) -> None:
    ledger = Ledger(ScriptedModel(reply), tmp_path / "a" / LEDGER)
    ledger.complete(REQUESTS)
    for suffix in ("", "-wal"):
        shutil.copy(tmp_path / "a" / (LEDGER + suffix), tmp_path / (LEDGER + suffix))
    assert "its 60 intact calls" in renew_ledger(tmp_path / LEDGER)
    assert (tmp_path / (LEDGER + DAMAGED_SUFFIX + "-wal")).exists() and calls_needed(tmp_path) == 0
