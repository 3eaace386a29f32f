"""The call ledger in the life of an index: sealed by every run, its damage found, and its sound calls carried over."""

import gc
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from graph.build.build import build_index
from graph.build.lifecycle import delete_documents, repair_index, resume_build, verify_index
from graph.errors import UserError
from graph.store.index_settings import IndexSettings
from graph.store.seal import LEDGER, SET_ASIDE
from graph.store.sqlite import SQLITE_FILE
from graph.types import Document
from modegraph.cli import open_model
from tests.fakes import ChatServer, HashEncoder, chat_server, extraction_reply

MANY = [
    Document(f"d{n:03}", f"Ship {n}", f"Ship {n} was built in {1800 + n} by the yard of Quill and sailed to Tarn.")
    for n in range(24)
]


def encoder(spec: str) -> HashEncoder:
    return HashEncoder()


def build(folder: Path, server: ChatServer, documents: list[Document] = MANY) -> None:
    settings = IndexSettings(extractor="llm", extractor_model=f"openai:m@{server.url}", infer_domain=False)
    build_index(folder, documents, settings, encoder, open_model)


def found_in(folder: Path) -> list[tuple[str, str]]:
    return [(damage.file, damage.repair) for damage in verify_index(folder)]


def test_every_run_leaves_the_ledger_sealed(tmp_path: Path) -> None:
    with chat_server(lambda body, number: extraction_reply(body)) as server:
        build(tmp_path / "i", server, MANY[:5])
        assert (tmp_path / "i" / LEDGER).exists() and verify_index(tmp_path / "i") == []
        build(tmp_path / "i", server, MANY[:9])
        assert verify_index(tmp_path / "i") == []
        delete_documents(tmp_path / "i", ["d001"], encoder, open_model)
        assert verify_index(tmp_path / "i") == []
        with pytest.raises(UserError):
            delete_documents(tmp_path / "i", ["unknown"], encoder, open_model)
        assert verify_index(tmp_path / "i") == []


def flip(share: float) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        place = min(int(len(data) * share), len(data) - 1)
        return data[:place] + bytes([data[place] ^ 0x11]) + data[place + 1 :]

    return change


def forget_all_but_the_first(folder: Path) -> None:
    """Take the other documents out, so that a build needs their calls again: from the ledger, or made anew."""
    delete_documents(folder, [document.source for document in MANY[1:]], encoder, open_model)


@pytest.fixture(scope="module")
def server() -> Iterator[ChatServer]:
    with chat_server(lambda body, number: extraction_reply(body)) as running:
        yield running


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory, server: ChatServer) -> Path:
    """An index of the first document alone, whose ledger holds the calls of all."""
    folder = tmp_path_factory.mktemp("forgetful") / "i"
    build(folder, server)
    forget_all_but_the_first(folder)
    return folder


@pytest.fixture
def folder(tmp_path: Path, forgetful: Path) -> Path:
    return shutil.copytree(forgetful, tmp_path / "i")


def calls_of_a_build(folder: Path, server: ChatServer) -> int:
    server.asked.clear()
    build(folder, server)
    assert verify_index(folder) == []
    return len(server.asked)


@pytest.mark.parametrize(
    ("damage", "fewest", "most"),
    [
        (flip(0), 0, 0),
        (flip(0.3), 0, 1),
        (flip(0.6), 0, 1),
        (flip(1), 0, 1),
        (lambda data: data[:-1], 0, 1),
        (lambda data: data[: len(data) * 4 // 5], 1, len(MANY) - 2),
        (lambda data: b"", len(MANY) - 1, len(MANY) - 1),
    ],
)
def test_damage_is_found_and_repair_loses_only_the_calls_it_hit(
    folder: Path, server: ChatServer, damage: Callable[[bytes], bytes], fewest: int, most: int
) -> None:
    damaged = damage((folder / LEDGER).read_bytes())
    (folder / LEDGER).write_bytes(damaged)
    assert found_in(folder) == [(LEDGER, f"modegraph repair {folder}")]
    with pytest.raises(UserError, match=f"{LEDGER}: its bytes are not.*modegraph repair"):
        build(folder, server)
    assert [found.file for found in repair_index(folder, encoder, open_model)] == [LEDGER]
    assert verify_index(folder) == []
    assert (folder / (LEDGER + SET_ASIDE)).read_bytes() == damaged
    assert fewest <= calls_of_a_build(folder, server) <= most
    forget_all_but_the_first(folder)
    assert calls_of_a_build(folder, server) == 0


def test_a_changed_row_costs_its_own_call(folder: Path, server: ChatServer) -> None:
    data = (folder / LEDGER).read_bytes()
    assert data.count(b"Ship 13 was built") == data.count(b"Ship 17 was built") == 1
    (folder / LEDGER).write_bytes(data.replace(b"Ship 13 was built", b"Ship 14 was built"))
    repair_index(folder, encoder, open_model)
    assert calls_of_a_build(folder, server) == 1
    assert "Ship 13 was built" in str(server.asked[0])


def test_no_damaged_ledger_is_ever_deleted(folder: Path, server: ChatServer) -> None:
    for name in (LEDGER + SET_ASIDE, LEDGER + SET_ASIDE + "2"):
        data = flip(0)((folder / LEDGER).read_bytes())
        (folder / LEDGER).write_bytes(data)
        repair_index(folder, encoder, open_model)
        assert (folder / name).read_bytes() == data
        assert calls_of_a_build(folder, server) == 0
        forget_all_but_the_first(folder)
    (folder / LEDGER).write_bytes(b"")
    repair_index(folder, encoder, open_model)
    assert calls_of_a_build(folder, server) == 0, "earlier damaged ledgers still hold the calls"


def test_a_ledger_that_is_gone_is_missed(tmp_path: Path) -> None:
    folder = tmp_path / "i"
    with chat_server(lambda body, number: extraction_reply(body)) as server:
        build(folder, server, MANY[:3])
        (folder / LEDGER).unlink()
        assert [(found.file, found.problem) for found in verify_index(folder)] == [(LEDGER, "missing")]
        with pytest.raises(UserError, match="modegraph repair"):
            build(folder, server, MANY[:4])
        repair_index(folder, encoder, open_model)
        assert verify_index(folder) == []


@contextmanager
def cut_short(folder: Path) -> Iterator[tuple[ChatServer, Callable[[], None]]]:
    """A build whose server stopped answering after 8 calls; and what makes it answer again."""
    answering = 8

    def say(body: dict[str, Any], number: int) -> Any:
        return extraction_reply(body) if number <= answering else (401, "{}")

    def go_on() -> None:
        nonlocal answering
        answering = 1000

    with chat_server(say) as server:
        with pytest.raises(UserError, match="status 401"):
            build(folder, server)
        yield server, go_on


def test_a_ledger_damaged_after_a_killed_run_is_repaired_before_the_run_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "i"
    with cut_short(folder) as (server, go_on):
        gc.collect()  # closes what the run had open, as its end does
        with closing(sqlite3.connect(folder / LEDGER)) as database:
            (kept,) = database.execute("SELECT count(*) FROM calls").fetchone()
        assert not (folder / f"{LEDGER}-wal").exists()
        (folder / LEDGER).write_bytes(flip(0)((folder / LEDGER).read_bytes()))
        repair = f"modegraph repair {folder}"
        assert (LEDGER, repair) in found_in(folder)
        with pytest.raises(UserError, match=repair):
            resume_build(folder, encoder, open_model)
        go_on()
        server.asked.clear()
        repair_index(folder, encoder, open_model)
        assert verify_index(folder) == [] and len(server.asked) == len(MANY) - kept < len(MANY)


def test_no_run_seals_a_damaged_index(tmp_path: Path) -> None:
    folder = tmp_path / "i"
    with chat_server(lambda body, number: extraction_reply(body)) as server:
        build(folder, server, MANY[:3])
        data = (folder / SQLITE_FILE).read_bytes()
        place = data.rindex(b"by the yard")
        (folder / SQLITE_FILE).write_bytes(data[:place] + b"B" + data[place + 1 :])
        with pytest.raises(UserError, match=f"{SQLITE_FILE}: its bytes are not.*into a new folder"):
            build(folder, server, MANY[:4])
    assert [found.file for found in verify_index(folder)] == [SQLITE_FILE]


def test_a_run_cut_short_leaves_no_seal_and_resume_sets_it(tmp_path: Path) -> None:
    folder = tmp_path / "i"
    with cut_short(folder) as (_server, go_on):
        assert (LEDGER, f"modegraph resume {folder}") in found_in(folder)
        go_on()
        resume_build(folder, encoder, open_model)
    assert verify_index(folder) == []


def test_a_changed_seal_is_told_from_a_changed_ledger(tmp_path: Path) -> None:
    folder = tmp_path / "i"
    with chat_server(lambda body, number: extraction_reply(body)) as server:
        build(folder, server, MANY[:3])
        seal = folder / f"{LEDGER}.seal"
        seal.write_bytes(flip(0.2)(seal.read_bytes()))
        assert found_in(folder) == [(f"{LEDGER}.seal", f"modegraph repair {folder}")]
        repair_index(folder, encoder, open_model)
        assert verify_index(folder) == [] and not (folder / (LEDGER + SET_ASIDE)).exists()
