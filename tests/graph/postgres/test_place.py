"""An index whose rows are in PostgreSQL is created with --store and used by commands through its folder; an invalid placement is refused with a
one-line message.
"""

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from graph.build.build import build_index
from graph.build.copy_index import copy_to_database, copy_to_folder
from graph.build.lifecycle import compact_index, index_status, verify_index
from graph.build.stores import read_settings
from graph.postgres.schema import known_migrations, place_in_database
from graph.store.arrays import load_arrays
from graph.store.data import IndexData
from graph.store.index_settings import DATABASE_FILE as DATABASE
from graph.store.index_settings import IndexSettings
from modegraph.cli import build_app
from tests.corpora import ISLES
from tests.graph.hashed import encoder
from tests.graph.postgres.test_copy import refusal
from tests.graph.same import assert_same_index
from tests.places import ROOT

SETTINGS = IndexSettings(min_similarity=0.1)


@pytest.fixture
def index(tmp_path: Path, database: str) -> Path:
    place_in_database(tmp_path / "index", database)
    build_index(tmp_path / "index", ISLES, SETTINGS, encoder)
    return tmp_path / "index"


def test_commands_find_the_rows_through_the_folder(
    tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graph.models.encoder.open_encoder", encoder)
    monkeypatch.setattr("graph.models.encoder.prepare_for_questions", lambda spec: None)
    (tmp_path / "docs").mkdir()
    for document in ISLES[:4]:
        (tmp_path / "docs" / f"{document.source}.txt").write_text(document.text)
    folder, deleted = str(tmp_path / "i"), f"{ISLES[0].source}.txt"

    def run(*words: str) -> Any:
        result = CliRunner().invoke(build_app(), [*words, "--json"])
        assert result.exit_code == 0, result.output or result.exception
        return json.loads(result.stdout)

    report = run("index", str(tmp_path / "docs"), "--out", folder, "--store", database)
    assert report["documents"] == 4 and report["written"] == 4
    assert run("index", str(tmp_path / "docs"), "--out", folder)["unchanged"] == 4
    assert run("plan", str(tmp_path / "docs"), "--out", folder)["unchanged"] == 4
    assert run("delete", folder, deleted)["documents"] == 3
    assert run("resume", folder)["documents"] == 3 and run("verify", folder)["damage"] == []
    (next((tmp_path / "i").glob("arrays-*")) / "passage_ids.data.npy").unlink()
    (tmp_path / "i/manifest.json").unlink()
    assert [found["file"] for found in run("repair", folder)["repaired"]] == ["manifest.json"]
    run("compact", folder)
    status = run("status", folder)
    assert status["store"] == database and status["rows"]["documents"] == 3 and status["unfinished"] == ""
    names = {file.name.partition("-")[0] for file in (tmp_path / "i").iterdir()}
    assert names == {"arrays", DATABASE, "manifest.json", "vectors"}, "there should be no index.sqlite"


def test_the_index_equals_one_in_sqlite(index: Path, tmp_path: Path, database: str) -> None:
    build_index(tmp_path / "twin", ISLES, SETTINGS, encoder)
    assert index_status(index).identity == index_status(tmp_path / "twin").identity
    copy_to_folder(database, tmp_path / "out", encoder)
    for each in (index, tmp_path / "twin", tmp_path / "out"):
        compact_index(each, encoder)
    assert len({index_status(each).identity for each in (index, tmp_path / "twin", tmp_path / "out")}) == 1
    assert f"its rows are in {database}" in refusal(lambda: copy_to_database(index, database))


def test_a_new_folder_can_adopt_an_index_copied_into_a_database(tmp_path: Path, database: str) -> None:
    build_index(tmp_path / "old", ISLES[1:], SETTINGS, encoder)
    copy_to_database(tmp_path / "old", database)
    place_in_database(tmp_path / "new", database)
    assert read_settings(tmp_path / "new") == SETTINGS
    build_index(tmp_path / "new", ISLES[:1], SETTINGS, encoder)
    build_index(tmp_path / "old", ISLES[:1], SETTINGS, encoder)
    assert_same_index(load_arrays(tmp_path / "new", IndexData), load_arrays(tmp_path / "old", IndexData))


def test_invalid_placements_are_refused_and_leave_no_folder(index: Path, tmp_path: Path, database: str) -> None:
    assert "Put it in PGPASSWORD" in refusal(
        lambda: place_in_database(tmp_path / "new", database.replace("postgres@", "postgres:hunter2@"))
    )
    elsewhere = database.rpartition("/")[0] + "/postgres"
    assert f"its rows are in {database}, not in {elsewhere}" in refusal(lambda: place_in_database(index, elsewhere))
    build_index(tmp_path / "file", ISLES, SETTINGS, encoder)
    assert "is not an index with its rows in a database" in refusal(
        lambda: place_in_database(tmp_path / "file", database)
    )
    assert "does not exist" in refusal(
        lambda: place_in_database(tmp_path / "new", elsewhere.replace("/postgres", "/none"))
    )
    assert not (tmp_path / "new").exists()
    (tmp_path / "text").touch()
    assert "text/new: cannot be written (Not a directory)" in refusal(
        lambda: place_in_database(tmp_path / "text/new", database)
    )


def test_a_file_of_parameters_that_has_been_edited_is_checked(index: Path) -> None:
    parameters = json.loads((index / DATABASE).read_text())["postgresql"]
    (index / DATABASE).write_text(json.dumps({"postgresql": parameters | {"options": None}}))
    assert index_status(index).rows["documents"] == len(ISLES)
    (index / DATABASE).write_text(json.dumps({"postgresql": parameters | {"hots": "db"}}))
    assert 'database.json: invalid connection option "hots". Expected' in refusal(lambda: index_status(index))
    (index / DATABASE).write_text('{"postgresql": 3}')
    assert "or write these parameters into it" in refusal(lambda: index_status(index))


def test_an_unreachable_database_is_reported_in_one_line_and_the_arrays_remain_readable(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graph.postgres.connect.CONNECT_S", 2)  # The shortest timeout that psycopg accepts.
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        place = {"host": "127.0.0.1", "port": str(silent.getsockname()[1]), "dbname": "docs"}
        (index / DATABASE).write_text(json.dumps({"postgresql": place}))
        for refuse in (lambda: index_status(index), lambda: build_index(index, [], SETTINGS, encoder)):
            line = refusal(refuse)
            assert (
                "timeout" in line and "\n" not in line and line.endswith("Check the address, the role and its password")
            )
    assert load_arrays(index, IndexData).document_sources[0]


def test_another_version_of_the_schema_is_refused_with_the_name_of_the_migration(index: Path, database: str) -> None:
    known = known_migrations()
    with psycopg.connect(database) as connection:
        connection.execute("INSERT INTO modegraph_index.migrations VALUES (9999, '9999-later')")
    for refuse in (lambda: index_status(index), lambda: build_index(index, [], SETTINGS, encoder)):
        assert f"migration 9999-later, from a newer modegraph. Expected at most {known[max(known)]}" in refusal(refuse)
    with psycopg.connect(database) as connection:
        connection.execute("DELETE FROM modegraph_index.migrations WHERE number > 1")
    assert "migration 0002-writers has not been run. Expected a migrated schema. Run a command that writes" in refusal(
        lambda: verify_index(index)
    )


def test_an_index_in_sqlite_does_not_import_the_code_for_postgresql(tmp_path: Path) -> None:
    script = """
import sys
from pathlib import Path
sys.modules["psycopg"] = None
from graph.build.build import build_index
from graph.build.lifecycle import compact_index, delete_documents, verify_index
from graph.store.index_settings import IndexSettings
from tests.corpora import ISLES
from tests.fakes import HashEncoder
folder = Path(sys.argv[1])
build_index(folder, ISLES, IndexSettings(), lambda spec: HashEncoder())
delete_documents(folder, ["tarn"], lambda spec: HashEncoder())
compact_index(folder, lambda spec: HashEncoder())
assert verify_index(folder) == []
print(*(name for name in sys.modules if name.startswith("graph.postgres")))
"""
    command = [sys.executable, "-P", "-c", script, str(tmp_path / "i")]
    result = subprocess.run(
        command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == ""
