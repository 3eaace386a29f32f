"""A copy of an index into PostgreSQL and back equals the index byte for byte; a copy that cannot be complete is not made."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

import graph.build.copy_index
from graph.build.build import Edit, build_index, edit_index
from graph.build.copy_index import COPIED_TABLES, copy_to_database, copy_to_folder
from graph.build.lifecycle import compact_index, delete_documents, index_status, verify_index
from graph.build.stores import open_for_writing
from graph.documents.split import split_passages
from graph.errors import UserError
from graph.extract.extraction import Failure, Reading
from graph.feedback import FEEDBACK, Feedback, FeedbackFile, GivenAnswer, Vote, read_feedback, row_of
from graph.postgres.schema import SCHEMA, known_migrations, place_in_database
from graph.store.index_settings import IndexSettings
from graph.store.ledger_file import LEDGER
from graph.store.sqlite import SQLITE_FILE
from graph.types import CompletionRequest, Document, Message
from modegraph.cli import build_app
from serve.ledger import Ledger
from tests.corpora import ISLES, guild_documents
from tests.fakes import HashEncoder, ScriptedModel
from tests.graph.damage import flip
from tests.graph.hashed import encoder

RUNNER = CliRunner()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An index with a history: documents added, replaced and deleted, so that its rows have gaps and its vectors several segments."""
    folder = tmp_path / "index"
    settings = IndexSettings(min_similarity=0.1, min_synonym_similarity=0.3)
    build_index(folder, [*ISLES[:3], *guild_documents()[:12]], settings, encoder)
    changed = Document(
        "lantern", "Lantern", "The Lantern was sold to Ada Marlow. “Kelp” – 4 May.", {"year": 1911, "tags": ["é"]}
    )
    edit_index(folder, lambda: [Edit(add=[*ISLES[3:], changed])], encoder)
    delete_documents(folder, ["marlow", "netmakers-3"], encoder)
    return folder


def tables_of(file: Path, tables: tuple[str, ...]) -> dict[str, list[Any]]:
    with closing(sqlite3.connect(file)) as connection:
        return {table: sorted(connection.execute(f"SELECT * FROM {table}")) for table in tables}


def test_every_table_except_changed_is_copied(folder: Path) -> None:
    with closing(sqlite3.connect(folder / SQLITE_FILE)) as connection:
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert names == {*COPIED_TABLES, "changed"}


def derived_files(folder: Path) -> dict[str, bytes]:
    """Every file that is derived from the rows, and the manifest, by name."""
    files = [*folder.glob("arrays-*/*"), *folder.glob("vectors/*"), folder / "manifest.json"]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def call_model(ledger: Path, count: int) -> ScriptedModel:
    """Send `count` different requests through the ledger; return the scripted model, which receives those that are not in the ledger."""
    model = ScriptedModel(lambda request: f"Reply to {request.messages[0].content}")
    requests = [CompletionRequest((Message("user", f"question {n} é"),), 10) for n in range(count)]
    Ledger(model, ledger).complete(requests)
    return model


def refusal(call: Any) -> str:
    """The message of the UserError that a call raises."""
    with pytest.raises(UserError) as caught:
        call()
    return str(caught.value)


def test_a_copy_of_a_copy_equals_the_index_byte_for_byte(folder: Path, database: str, tmp_path: Path) -> None:
    call_model(folder / LEDGER, 3)
    before = tables_of(folder / SQLITE_FILE, COPIED_TABLES)
    counts = copy_to_database(folder, database)
    assert tables_of(folder / SQLITE_FILE, COPIED_TABLES) == before and counts == {
        **{name: len(rows) for name, rows in before.items()},
        "calls": 3,
        "feedback": 0,
    }
    assert copy_to_folder(database, tmp_path / "back", encoder) == counts
    assert tables_of(tmp_path / "back" / SQLITE_FILE, COPIED_TABLES) == before
    assert tables_of(tmp_path / "back" / LEDGER, ("calls",)) == tables_of(folder / LEDGER, ("calls",))
    assert verify_index(tmp_path / "back") == [] and index_status(tmp_path / "back").unfinished == ""
    generation = index_status(folder).generation
    assert index_status(tmp_path / "back").generation == generation
    compact_index(folder, encoder)
    compact_index(tmp_path / "back", encoder)
    assert index_status(folder).generation == generation + 1, "compact should merge the several segments of the index"
    assert without_generation(derived_files(folder), generation + 1) == without_generation(
        derived_files(tmp_path / "back"), generation
    )
    assert call_model(tmp_path / "back" / LEDGER, 4).requests[0].messages[0].content == "question 3 é", (
        "stored calls should not be repeated"
    )


def test_feedback_is_copied_and_more_can_be_added(folder: Path, database: str, tmp_path: Path) -> None:
    given = GivenAnswer("tiny", "Ada Marlow [1]", context_ids=("p",))
    entries = [
        Feedback(str(n), "reader", "2026-11-30T12:00:00Z", bool(n), "Who founded the yard? é", Vote(given, "up"))
        for n in range(3)
    ]
    FeedbackFile(folder, 1 << 20).add(entries[0])
    FeedbackFile(folder, 1 << 20).add(entries[1])
    assert copy_to_database(folder, database)["feedback"] == 2
    columns = 'id, "user", at, consent, kind, question, content'
    with psycopg.connect(database) as connection:
        insert = f"INSERT INTO {SCHEMA}.feedback ({columns}) VALUES (%s, %s, %s, %s, %s, %s, %s)"
        connection.execute(insert, row_of(entries[2]))
    assert copy_to_folder(database, tmp_path / "back", encoder)["feedback"] == 3
    assert read_feedback(tmp_path / "back") == entries
    (folder / FEEDBACK).write_bytes(b"no database")
    with psycopg.connect(database) as connection:
        connection.execute(f"DROP SCHEMA {SCHEMA} CASCADE")
    assert "feedback.sqlite: not readable" in refusal(lambda: copy_to_database(folder, database))


def without_generation(files: dict[str, bytes], generation: int) -> dict[str, Any]:
    """The files without the number of the generation, which counts how often the folder was written."""
    renamed = {name.replace(f"arrays-{generation:06}", "arrays"): data for name, data in files.items()}
    manifest = json.loads(renamed.pop("manifest.json").rpartition(b"\n")[0])
    assert manifest.pop("generation") == generation
    manifest["arrays"] = manifest["arrays"].replace(f"arrays-{generation:06}", "arrays")
    return {**renamed, "manifest.json": manifest}


def test_a_copy_of_a_compacted_index_equals_it_byte_for_byte(tmp_path: Path, database: str) -> None:
    build_index(tmp_path / "index", ISLES, IndexSettings(min_similarity=0.1), encoder)
    compact_index(tmp_path / "index", encoder)
    copy_to_database(tmp_path / "index", database)
    copy_to_folder(database, tmp_path / "back", encoder)
    compact_index(tmp_path / "back", encoder)
    assert derived_files(tmp_path / "back") == derived_files(tmp_path / "index")


def test_a_database_contains_one_index_and_is_not_overwritten(folder: Path, database: str, tmp_path: Path) -> None:
    copy_to_database(folder, database)
    assert "already contains an index. Expected a database without one" in refusal(
        lambda: copy_to_database(folder, database)
    )
    assert "exists and is not an empty folder. Expected a new or empty folder" in refusal(
        lambda: copy_to_folder(database, folder, encoder)
    )
    assert "no index in schema modegraph_index" in refusal(
        lambda: copy_to_folder(database.rpartition("/")[0] + "/postgres", tmp_path / "none", encoder)
    )
    assert not (tmp_path / "none").exists()


def test_a_database_without_an_index_is_not_copied(database: str, tmp_path: Path) -> None:
    place_in_database(tmp_path / "placed", database)
    with pytest.raises(UserError, match=r"contains no index\. Expected a database with one\. Name another"):
        copy_to_folder(database, tmp_path / "copy", encoder)
    assert not (tmp_path / "copy").exists()


def test_texts_of_the_database_sort_by_bytes(folder: Path, database: str) -> None:
    copy_to_database(folder, database)
    query = "SELECT DISTINCT collation_name FROM information_schema.columns WHERE table_schema = 'modegraph_index' AND data_type = 'text'"
    with psycopg.connect(database) as connection:
        assert connection.execute(query).fetchall() == [("C",)]


def test_a_source_with_a_nul_character_is_reported_and_nothing_is_copied(tmp_path: Path, database: str) -> None:
    build_index(tmp_path / "i", [*ISLES, Document("o\0dd", "", "A mark in its name.")], IndexSettings(), encoder)
    assert "documents 'o\\x00dd': a NUL character" in refusal(lambda: copy_to_database(tmp_path / "i", database))
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT to_regnamespace('modegraph_index')").fetchone() == (None,)


def test_nul_outside_documents_is_replaced_and_a_call_with_it_is_left_out(folder: Path, database: str) -> None:
    with open_for_writing(folder) as store, store.transaction():
        source = store.sources()[0]
        (passage,) = split_passages(store.document(source), 200, len)
        store.put_reading(Reading(passage, "llm", (), failure=Failure("no\0 JSON", "\0", 1)))
    model = ScriptedModel(lambda request: request.messages[0].content)
    requests = [CompletionRequest((Message("user", text),), 10) for text in ("a", "b\0")]
    Ledger(model, folder / LEDGER).complete(requests)
    vote = Vote(GivenAnswer("tiny", "Ada Marlow [1]", context_ids=("p",)), "up")
    FeedbackFile(folder, 1 << 20).add(Feedback("1", "reader", "2026-11-30T12:00:00Z", True, "Who\0?", vote))
    assert copy_to_database(folder, database)["calls"] == 1
    with psycopg.connect(database) as connection:
        stored = connection.execute(f"SELECT problem, reply, question FROM {SCHEMA}.quarantine, {SCHEMA}.feedback")
        assert stored.fetchall() == [("no\ufffd JSON", "\ufffd", "Who\ufffd?")]


def test_a_damaged_index_is_not_copied(folder: Path, database: str) -> None:
    flip(folder / SQLITE_FILE, -100)
    assert "its contents have changed since the last run" in refusal(lambda: copy_to_database(folder, database))


def test_another_version_of_the_schema_is_refused_with_the_name_of_the_migration(
    folder: Path, database: str, tmp_path: Path
) -> None:
    copy_to_database(folder, database)
    known = known_migrations()
    with psycopg.connect(database) as connection:
        connection.execute("INSERT INTO modegraph_index.migrations VALUES (%s, '9999-later')", (9999,))
    for refuse in (
        lambda: copy_to_folder(database, tmp_path / "back", encoder),
        lambda: copy_to_database(folder, database),
    ):
        assert f"migration 9999-later, from a newer modegraph. Expected at most {known[max(known)]}" in refusal(refuse)
    with psycopg.connect(database) as connection:
        connection.execute("DELETE FROM modegraph_index.migrations")
    message = refusal(lambda: copy_to_folder(database, tmp_path / "back", encoder))
    assert "migration 0001-rows has not been run" in message and not (tmp_path / "back").exists()


def test_migrations_are_numbered_from_one_without_gaps() -> None:
    assert list(known_migrations()) == list(range(1, len(known_migrations()) + 1))


def test_a_copy_whose_arrays_cannot_be_made_keeps_its_rows(folder: Path, database: str, tmp_path: Path) -> None:
    copy_to_database(folder, database)
    other = refusal(lambda: copy_to_folder(database, tmp_path / "back", lambda spec: HashEncoder("another")))
    assert "another" in other
    assert tables_of(tmp_path / "back" / SQLITE_FILE, COPIED_TABLES[1:]) == tables_of(
        folder / SQLITE_FILE, COPIED_TABLES[1:]
    )


def test_a_role_with_a_statement_timeout_can_copy_a_large_index(
    folder: Path, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_to_database(folder, database)
    receive, timeouts = graph.build.copy_index._receive, set()

    def noted(connection: Any, file: sqlite3.Connection, table: str) -> int:
        timeouts.add(connection.execute("SHOW statement_timeout").fetchone()[0])
        return receive(connection, file, table)

    monkeypatch.setattr("graph.build.copy_index._receive", noted)
    copy_to_folder(f"{database}?options=-c%20statement_timeout%3D60000", tmp_path / "back", encoder)
    assert timeouts == {"0"}


def test_an_interrupted_copy_leaves_the_folder_empty(
    folder: Path, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_to_database(folder, database)
    receive = graph.build.copy_index._receive

    def cut(connection: Any, file: sqlite3.Connection, table: str) -> int:
        if table == "mentions":
            with psycopg.connect(database) as other:
                other.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))
        return receive(connection, file, table)

    with monkeypatch.context() as patch:
        patch.setattr("graph.build.copy_index._receive", cut)
        assert "Nothing was changed" in refusal(lambda: copy_to_folder(database, tmp_path / "back", encoder))
    assert list((tmp_path / "back").iterdir()) == []
    copy_to_folder(database, tmp_path / "back", encoder)
    assert not (tmp_path / "back" / LEDGER).exists() and verify_index(tmp_path / "back") == []


def test_the_command_copies_in_either_direction(
    folder: Path, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graph.models.encoder.open_encoder", encoder)
    result = RUNNER.invoke(build_app(), ["copy", str(folder), database, "--json"])
    assert result.exit_code == 0, result.exception
    documents = len(tables_of(folder / SQLITE_FILE, ("documents",))["documents"])
    assert json.loads(result.stdout)["rows"]["documents"] == documents
    result = RUNNER.invoke(build_app(), ["copy", database, str(tmp_path / "back")])
    assert result.exit_code == 0 and f"{database} to {tmp_path / 'back'}: " in result.stdout
    for wrong in ([str(folder), str(tmp_path / "x")], [database, database]):
        assert "Name one of each" in str(RUNNER.invoke(build_app(), ["copy", *wrong]).exception)
