"""Migrations of the store: an older schema is migrated and keeps its rows, and queries use the indexes that migrations create."""

import re
from pathlib import Path

import psycopg
import pytest

from graph.build.build import build_index
from graph.build.lifecycle import compact_index, index_status, verify_index
from graph.build.read_passages import reading_facts
from graph.build.stores import open_store
from graph.errors import UserError
from graph.postgres.schema import place_in_database
from graph.postgres.store import to_psycopg
from graph.store.index_settings import IndexSettings
from graph.types import Document
from tests.corpora import ISLES, guild_documents
from tests.graph.hashed import encoder

SETTINGS = IndexSettings(min_similarity=0.1)
UNDO_MIGRATIONS = """SET search_path = modegraph_index; DROP INDEX documents_to_extract, passages_by_reader;
    ALTER TABLE feedback RENAME COLUMN content TO said; DELETE FROM migrations WHERE number > 3"""


@pytest.fixture
def index(tmp_path: Path, database: str) -> Path:
    place_in_database(tmp_path / "index", database)
    build_index(tmp_path / "index", [*ISLES, *guild_documents()], SETTINGS, encoder)
    return tmp_path / "index"


def test_the_next_writer_migrates_an_older_schema_and_keeps_its_rows(index: Path, database: str) -> None:
    rows = index_status(index).rows
    with psycopg.connect(database) as connection:
        connection.execute(UNDO_MIGRATIONS)
    with pytest.raises(
        UserError, match=r"migration 0004-indexes has not been run\. Expected a migrated schema\. Run a command"
    ):
        index_status(index)
    build_index(index, ISLES, SETTINGS, encoder)
    assert index_status(index).rows == rows and verify_index(index) == []
    build_index(index, [Document("new", "New", "The New of Quill was built in 1912.")], SETTINGS, encoder)
    assert index_status(index).rows["documents"] == rows["documents"] + 1


def test_the_queries_of_every_write_use_index_only_scans(
    index: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compact_index(index, encoder)
    statements: list[str] = []
    with open_store(index) as store:
        execute = store._connection.execute
        monkeypatch.setattr(
            store._connection, "execute", lambda *arguments: statements.append(arguments[0]) or execute(*arguments)
        )
        reading_facts(store)
        store.sources_to_extract()
    scans = []
    with psycopg.connect(database) as connection:
        connection.execute("SET enable_seqscan = off")
        for statement in statements:
            plan = connection.execute(f"EXPLAIN {to_psycopg(statement)}").fetchall()  # type: ignore[arg-type]
            scans += re.findall(r"Index Only Scan using (\w+) on (?:documents|passages)", str(plan))
    dropped, _count, by_reader, waiting = scans
    assert (dropped, by_reader, waiting) == ("passages_by_reader", "passages_by_reader", "documents_to_extract")
