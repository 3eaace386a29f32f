"""What is left of a ledger after damage: every flipped byte costs one call at most, a cut only what is gone."""

import re
import shutil
import sqlite3
from pathlib import Path
from types import NoneType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph.store.seal import LEDGER, SET_ASIDE, CallRow
from graph.types import CompletionRequest, Message
from serve.ledger import Ledger
from serve.salvage import PAGE_BYTES, salvage_rows
from tests.fakes import ScriptedModel

CALLS = 120
REQUESTS = [CompletionRequest((Message("user", str(number)),), max_tokens=9) for number in range(CALLS)]


def reply(request: CompletionRequest) -> str:
    """Texts of 0 to 12,000 bytes: some short enough for many on a page, some on chains of overflow pages."""
    number = int(request.messages[0].content)
    return "" if number == 7 else f"Reply {number}: " + "Söderlaun " * ((number % 11) ** 3)


def short_reply(request: CompletionRequest) -> str:
    return f"Reply {request.messages[0].content}: " + "salt " * (int(request.messages[0].content) % 50)


def fill(file: Path, model: ScriptedModel) -> list[CallRow]:
    """The rows of a ledger of all calls, its log folded into it."""
    Ledger(model, file).complete(REQUESTS)
    with sqlite3.connect(file) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return list(database.execute("SELECT * FROM calls"))


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, set[CallRow]]:
    file = tmp_path_factory.mktemp("long") / LEDGER
    rows = fill(file, ScriptedModel(reply))
    assert len(rows) == CALLS and max(len(row[2].encode()) for row in rows) > 2 * PAGE_BYTES
    return file.read_bytes(), set(rows)


@pytest.fixture(scope="module")
def short_ledger(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[CallRow]]:
    file = tmp_path_factory.mktemp("short") / LEDGER
    rows = fill(file, ScriptedModel(short_reply))
    return file.read_bytes(), rows


def flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 0x11]) + data[place + 1 :]


def test_a_sound_file_gives_every_row_as_sqlite_does(ledger: tuple[bytes, set[CallRow]], tmp_path: Path) -> None:
    data, rows = ledger
    (tmp_path / "l").write_bytes(data)
    assert rows <= set(salvage_rows(tmp_path / "l"))


@given(data=st.data())
def test_a_flipped_byte_costs_one_row_at_most(
    ledger: tuple[bytes, set[CallRow]], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    whole, rows = ledger
    place = data.draw(st.one_of(st.integers(0, 3 * PAGE_BYTES), st.integers(0, len(whole) - 1)))
    file = tmp_path_factory.getbasetemp() / "flipped"
    file.write_bytes(flipped(whole, place))
    assert len(rows - set(salvage_rows(file))) <= 1


@given(st.binary(max_size=3 * PAGE_BYTES), st.integers(0, 3 * PAGE_BYTES))
def test_no_bytes_stop_it(tmp_path_factory: pytest.TempPathFactory, noise: bytes, place: int) -> None:
    file = tmp_path_factory.getbasetemp() / "noise"
    file.write_bytes(noise[:place] + b"\x08\x81\x0d" + noise[place:])
    for row in salvage_rows(file):
        assert [type(value) for value in row] in (
            [str, str, str, int, int, str, int],
            [str, str, str, int, int, str, NoneType],
        )


def test_an_overflow_chain_in_a_circle_ends(ledger: tuple[bytes, set[CallRow]], tmp_path: Path) -> None:
    data, rows = ledger
    pages = len(data) // PAGE_BYTES
    assert pages > 40
    circle = b"".join(
        (number + 1).to_bytes(4, "big") + data[number * PAGE_BYTES + 4 : (number + 1) * PAGE_BYTES]
        for number in range(pages)
    )
    (tmp_path / "l").write_bytes(circle)
    assert 0 < len(rows & set(salvage_rows(tmp_path / "l"))) < CALLS


@pytest.mark.parametrize("share", [0.0, 0.01, 0.37, 0.5, 0.99])
def test_a_cut_costs_the_rows_that_are_gone_and_only_those_are_asked_again(
    short_ledger: tuple[bytes, list[CallRow]], tmp_path: Path, share: float
) -> None:
    data, rows = short_ledger
    left = data[: int(len(data) * share)]
    there = [
        re.search(re.escape("".join(row[:3]).encode()) + b".{0,9}" + row[5].encode(), left, re.DOTALL) for row in rows
    ]
    (tmp_path / (LEDGER + SET_ASIDE)).write_bytes(left)
    model = ScriptedModel(short_reply)
    made = Ledger(model, tmp_path / LEDGER).complete(REQUESTS)
    assert [one.text for one in made] == [short_reply(request) for request in REQUESTS]
    assert len(model.asked) == there.count(None)
    assert (tmp_path / (LEDGER + SET_ASIDE)).read_bytes() == left


@pytest.mark.parametrize("place", [0, 18, 100, PAGE_BYTES, PAGE_BYTES + 3, PAGE_BYTES + 9])
def test_where_sqlite_reads_nothing_no_call_is_lost(
    ledger: tuple[bytes, set[CallRow]], tmp_path: Path, place: int
) -> None:
    (tmp_path / (LEDGER + SET_ASIDE)).write_bytes(flipped(ledger[0], place))
    model = ScriptedModel(reply)
    made = Ledger(model, tmp_path / LEDGER).complete(REQUESTS)
    assert [one.text for one in made] == [reply(request) for request in REQUESTS] and model.asked == []


def test_calls_that_were_still_in_the_log_are_taken_over(tmp_path: Path) -> None:
    model = ScriptedModel(reply)
    open_still = Ledger(model, tmp_path / "a" / LEDGER)
    open_still.complete(REQUESTS)
    damaged = tmp_path / (LEDGER + SET_ASIDE)
    shutil.copy(tmp_path / "a" / (LEDGER + "-wal"), f"{damaged}-wal")
    assert Path(f"{damaged}-wal").stat().st_size > PAGE_BYTES
    damaged.write_bytes(flipped((tmp_path / "a" / LEDGER).read_bytes(), 0))
    calls_before = len(model.asked)
    Ledger(model, tmp_path / LEDGER).complete(REQUESTS)
    assert len(model.asked) == calls_before == CALLS


def test_every_damaged_ledger_that_was_set_aside_is_read(tmp_path: Path) -> None:
    model = ScriptedModel(reply)
    for number, name in enumerate((LEDGER + SET_ASIDE, LEDGER + SET_ASIDE + "2")):
        Ledger(model, tmp_path / str(number) / LEDGER).complete(REQUESTS[number::2])
        for suffix in ("", "-wal"):
            shutil.copy(tmp_path / str(number) / (LEDGER + suffix), tmp_path / (name + suffix))
    Ledger(model, tmp_path / LEDGER).complete(REQUESTS)
    assert len(model.asked) == CALLS


def test_a_changed_row_does_not_stand_in_the_way_of_a_sound_one(
    short_ledger: tuple[bytes, list[CallRow]], tmp_path: Path
) -> None:
    data, _ = short_ledger
    (tmp_path / (LEDGER + SET_ASIDE)).write_bytes(data.replace(b"Reply", b"reply"))
    (tmp_path / (LEDGER + SET_ASIDE + "2")).write_bytes(data)
    model = ScriptedModel(short_reply)
    made = Ledger(model, tmp_path / LEDGER).complete(REQUESTS)
    assert [one.text for one in made] == [short_reply(request) for request in REQUESTS] and model.asked == []
