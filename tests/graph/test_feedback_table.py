"""Feedback on an index in PostgreSQL is stored in the database, so that all servers of the index share it; the table behaves like the file."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from graph.errors import Unavailable
from graph.feedback import FEEDBACK, Correction, FeedbackFull, Vote, open_feedback, read_feedback
from graph.postgres.connect import dsn_of
from graph.postgres.schema import place_in_database
from graph.store.index_settings import DATABASE_FILE, has_database
from tests.graph.test_feedback_file import EVERY_KIND, YARD, entry
from tests.postgres_server import fresh_database

LIMIT_BYTES = 1 << 30


@pytest.fixture(params=["sqlite", "postgresql"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """The folder of an index without feedback."""
    if request.param == "sqlite":
        yield tmp_path
        return
    with fresh_database(request.getfixturevalue("postgres"), "feedback") as dsn:
        place_in_database(tmp_path / "index", dsn)
        yield tmp_path / "index"


def test_every_kind_is_read_back_in_order_and_by_user(folder: Path) -> None:
    assert read_feedback(folder) == [] and open_feedback(folder, LIMIT_BYTES).of_user("reader-1") == []
    entries = [entry(content, id=str(9 - n), user=f"reader-{n % 2}") for n, content in enumerate(EVERY_KIND)]
    for each in entries:
        open_feedback(folder, LIMIT_BYTES).add(each)
    assert read_feedback(folder) == entries and open_feedback(folder, LIMIT_BYTES).of_user("reader-1") == entries[1::2]
    assert open_feedback(folder, LIMIT_BYTES).delete_user("reader-1") == 2 == len(read_feedback(folder))
    assert open_feedback(folder, LIMIT_BYTES).delete_user("reader-1") == 0
    assert (folder / FEEDBACK).exists() is not has_database(folder)


def test_a_question_with_nul_is_stored(folder: Path) -> None:
    open_feedback(folder, LIMIT_BYTES).add(entry(Vote(YARD, "up"), question="Who\0 built it?"))
    assert [each.question.replace("\ufffd", "\0") for each in read_feedback(folder)] == ["Who\0 built it?"]


def test_feedback_beyond_the_limit_is_refused(folder: Path) -> None:
    store = open_feedback(folder, 100_000)
    with pytest.raises(FeedbackFull):
        for number in range(400):
            store.add(entry(Correction(YARD, f"{number} " + "x" * 1000), id=str(number)))
    assert 10 < len(read_feedback(folder)) < 150


def test_concurrent_writers_lose_no_entries(folder: Path) -> None:
    def write(writer: int) -> None:
        for number in range(5):
            open_feedback(folder, LIMIT_BYTES).add(entry(Vote(YARD, "up"), id=f"{writer}-{number}"))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert {each.id for each in read_feedback(folder)} == {f"{w}-{n}" for w in range(4) for n in range(5)}


@pytest.mark.parametrize("folder", ["postgresql"], indirect=True)
def test_the_first_entry_migrates_an_older_schema(folder: Path) -> None:
    with psycopg.connect(dsn_of(folder)) as connection:
        connection.execute("SET search_path = modegraph_index")
        connection.execute("DROP TABLE feedback; DROP INDEX documents_to_extract, passages_by_reader")
        connection.execute("DELETE FROM migrations WHERE number > 2")
    with pytest.raises(Unavailable, match="migration 0003-feedback has not been run"):
        read_feedback(folder)
    open_feedback(folder, LIMIT_BYTES).add(entry(EVERY_KIND[0]))
    assert read_feedback(folder) == [entry(EVERY_KIND[0])]


@pytest.mark.parametrize("folder", ["postgresql"], indirect=True)
def test_an_unreachable_database_is_reported(folder: Path) -> None:
    (folder / DATABASE_FILE).write_text(
        json.dumps({"postgresql": {"host": "127.0.0.1", "port": "9", "dbname": "docs"}})
    )
    for attempt in (
        lambda: read_feedback(folder),
        lambda: open_feedback(folder, LIMIT_BYTES).add(entry(EVERY_KIND[0])),
    ):
        with pytest.raises(Unavailable, match="a server that answers"):
            attempt()
