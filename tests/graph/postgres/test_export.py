"""An export equals the index, replaces the previous export as a whole or not at all, and changes nothing that it did not create."""

import json
import math
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from typer.testing import CliRunner

from graph.build.build import build_index
from graph.errors import UserError
from graph.export.graph_files import index_tables
from graph.export.postgres import TABLES, export_index
from graph.index.index import Index, open_index
from graph.store.data import VECTOR_FIELDS
from graph.store.index_settings import IndexSettings
from graph.types import Document
from modegraph.cli import build_app
from tests.corpora import ISLES
from tests.fakes import HashEncoder
from tests.graph.postgres.large import large_index
from tests.places import ROOT

DOCUMENT_WITH_NUL = Document(
    "odd\0source",
    "Odd \0 title",
    "The mark came from Quill. The \0 was in it.",
    {"a": "x\0", "b": ["\\u0000", 3], "c": math.nan},
)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp("export") / "index"
    settings = IndexSettings(min_similarity=0.1, min_synonym_similarity=0.3)
    other = replace(DOCUMENT_WITH_NUL, source="odd\ufffd0;source")
    build_index(folder, [*ISLES, DOCUMENT_WITH_NUL, other], settings, lambda spec: HashEncoder())
    return open_index(folder, lambda spec: HashEncoder())


def rows(dsn: str, query: str, *parameters: object) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(query, parameters).fetchall()


def schemas(dsn: str) -> set[str]:
    query = "SELECT nspname FROM pg_namespace WHERE nspname NOT LIKE 'pg_%%' AND nspname <> 'information_schema'"
    return {name for (name,) in rows(dsn, query)} - {"public", "extensions"}


def refusal(index: Index, dsn: str, schema: str = "modegraph") -> str:
    """The message of a refused export, which must leave the database unchanged."""
    before = state(dsn)
    with pytest.raises(UserError) as caught:
        export_index(index, dsn, schema)
    assert state(dsn) == before
    return str(caught.value)


def state(dsn: str) -> tuple[set[str], list[tuple[Any, ...]]]:
    tables = "SELECT oid, relname FROM pg_class WHERE relnamespace::regnamespace::text NOT LIKE 'pg_%%' ORDER BY oid"
    return schemas(dsn), rows(dsn, tables)


def test_the_tables_equal_those_of_the_parquet_export(index: Index, database: str) -> None:
    report = export_index(index, database)
    assert report.maintenance_work_mem == "64MB" and schemas(database) == {"modegraph"}
    for name, table in index_tables(index).items():
        columns = ", ".join(f'"{column}"' for column in TABLES[name]).replace('"vector"', "vector::text AS vector")
        stored = rows(database, f"SELECT {columns} FROM modegraph.{name}")
        assert table.column_names == list(TABLES[name]) and len(stored) == report.rows[name] == table.num_rows
        for stored_row, row in zip(stored, table.to_pylist(), strict=True):
            for (column, value), found in zip(row.items(), stored_row, strict=True):
                check_value(name, column, value, found)
    ((*about, exported_at),) = rows(database, "SELECT * FROM modegraph.export")
    assert about == [1, index.manifest.identity, "minilm", "hash-encoder"] and exported_at is not None


def check_value(table: str, column: str, value: Any, found: Any) -> None:
    if column == "vector":
        assert np.array_equal(np.array(json.loads(found), np.float16), np.array(value, np.float16))
    elif column == "weight":
        assert np.float32(found) == np.float32(value)
    elif column == "metadata":
        assert found == {"a": "x\ufffd", "b": ["\\u0000", 3], "c": None} or found == json.loads(value) == {}
    elif column in ("id", "source", "target", "proposition", "passage"):
        key = value.partition(":")[2] if table == "edges" else value
        assert found == key.replace("\ufffd", "\ufffdfffd;").replace("\0", "\ufffd0;")
    else:
        assert found == (value.replace("\0", "\ufffd") if isinstance(value, str) else value)


def test_texts_sort_by_bytes_and_vectors_have_hnsw_indexes(index: Index, database: str) -> None:
    export_index(index, database)
    collations = "SELECT DISTINCT collation_name FROM information_schema.columns WHERE table_schema = 'modegraph' AND data_type = 'text'"
    assert rows(database, collations) == [("C",)]
    hnsw = "SELECT tablename FROM pg_indexes WHERE schemaname = 'modegraph' AND indexdef LIKE '%%USING hnsw (vector%%halfvec_cosine_ops)'"
    assert {name for (name,) in rows(database, hnsw)} == set(VECTOR_FIELDS)
    not_analysed = "SELECT relname FROM pg_class WHERE relnamespace = 'modegraph'::regnamespace AND relkind = 'r' AND reltuples < 0"
    assert rows(database, not_analysed) == [("export",)]


def test_a_later_export_replaces_the_previous_one_and_nothing_else(index: Index, database: str) -> None:
    export_index(index, database)
    export_index(index, database, "other")
    export_index(index, database, "modegraph_partial")
    fewer = large_index(index, 3, 20, 10)
    assert export_index(fewer, database).rows["passages"] == 20
    assert rows(database, "SELECT count(*) FROM modegraph.passages") == [(20,)]
    assert rows(database, "SELECT count(*) FROM other.passages") == [(len(index.data.passage_ids),)]
    assert schemas(database) == {"modegraph", "other", "modegraph_partial"}


def test_an_index_without_propositions_is_exported(database: str, tmp_path: Path) -> None:
    build_index(tmp_path / "i", [Document("a", "", "Hm.")], IndexSettings(), lambda spec: HashEncoder())
    assert export_index(open_index(tmp_path / "i", lambda spec: HashEncoder()), database).rows["propositions"] == 0


KILLED_EXPORT = """
import os, signal, sys
import graph.export.postgres as tables
from graph.index.index import open_index
from graph.export.postgres import export_index
from tests.fakes import HashEncoder

def killed(index):
    yield from list(occurrences(index))[:3]
    os.kill(os.getpid(), signal.SIGKILL)

occurrences, tables.occurrences = tables.occurrences, killed
export_index(open_index(sys.argv[1], lambda spec: HashEncoder()), sys.argv[2])
"""


def test_a_killed_export_leaves_the_previous_one(index: Index, database: str) -> None:
    export_index(index, database)
    before = state(database)
    process = subprocess.run(
        [sys.executable, "-P", "-c", KILLED_EXPORT, index.folder, database], env={"PYTHONPATH": str(ROOT)}, check=False
    )
    assert process.returncode == -signal.SIGKILL
    assert export_index(index, database, "again").rows["occurrences"] > 3, "the killed process should hold no lock"
    assert state(database)[1][: len(before[1])] == before[1] and schemas(database) == {"modegraph", "again"}


def test_a_connection_lost_half_way_leaves_the_previous_export(
    index: Index, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_index(index, database)

    def cut(index: Index) -> Iterator[Any]:
        rows(database, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'modegraph'")
        yield from ()

    monkeypatch.setattr("graph.export.postgres.occurrences", cut)
    assert "terminating connection" in refusal(index, database) or "closed" in refusal(index, database)


def test_a_second_export_to_a_schema_is_refused_while_one_runs(
    index: Index, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, end = threading.Event(), threading.Event()

    def wait(index: Index) -> Iterator[Any]:
        begun.set()
        assert end.wait(60)
        yield from ()

    with monkeypatch.context() as patch:
        patch.setattr("graph.export.postgres.occurrences", wait)
        first = threading.Thread(target=export_index, args=(index, database))
        first.start()
        assert begun.wait(60)
        assert "export to schema modegraph is running. Expected one export at a time" in refusal(index, database)
    export_index(index, database, "other")
    end.set()
    first.join()
    assert schemas(database) == {"modegraph", "other"}


def test_a_recent_pgvector_is_required(index: Index, database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("UPDATE pg_extension SET extversion = '0.8.3' WHERE extname = 'vector'")
    assert "pgvector 0.8.3. Expected pgvector 0.8.4 or newer" in refusal(index, database)
    with psycopg.connect(database) as connection:
        connection.execute("DROP EXTENSION vector")
    assert (
        "no pgvector. Expected pgvector 0.8.4 or newer. Run in that database, as a superuser: CREATE EXTENSION vector"
        in refusal(index, database)
    )


def test_an_export_does_not_replace_a_schema_that_is_foreign_newer_or_used_by_other_objects(
    index: Index, database: str
) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("CREATE SCHEMA theirs; CREATE TABLE theirs.passages (id text); CREATE ROLE reader LOGIN")
    try:
        assert "schema theirs is not an export of an index" in refusal(index, database, "theirs")
        reader = database.replace("postgres@", "reader@")
        assert "permission denied for database one. Expected a role with that permission" in refusal(index, reader)
        export_index(index, database)
        with psycopg.connect(database) as connection:
            connection.execute("GRANT CREATE ON DATABASE one TO reader")
        assert "schema modegraph belongs to another role" in refusal(index, reader)
        with psycopg.connect(database) as connection:
            connection.execute("UPDATE modegraph.export SET format = 2")
        assert "schema modegraph has format 2, from a newer modegraph. Expected at most format 1" in refusal(
            index, database
        )
        with psycopg.connect(database) as connection:
            connection.execute("UPDATE modegraph.export SET format = 1")
            connection.execute("CREATE VIEW public.titles AS SELECT title FROM modegraph.documents")
        assert "view public.titles depends on table modegraph.documents" in refusal(index, database)
        with psycopg.connect(database) as connection:
            connection.execute("DROP VIEW public.titles; CREATE TABLE modegraph.mine (id text)")
        assert "table modegraph.mine depends on schema modegraph" in refusal(index, database)
    finally:
        with psycopg.connect(database) as connection:
            connection.execute("DROP OWNED BY reader; DROP ROLE reader")


@pytest.mark.parametrize("name", ["pg_mine", "Mine", "a b", 'x"; DROP', "a" * 41, ""])
def test_an_invalid_schema_name_is_refused(index: Index, name: str) -> None:
    with pytest.raises(UserError, match="up to 40 characters from a-z"):
        export_index(index, "host=nowhere.invalid", name)


def test_vectors_too_long_for_pgvector_to_index_are_refused(index: Index) -> None:
    data = replace(index.data, passage_vectors_PD=np.zeros((1, 4001), np.float32))
    with pytest.raises(UserError, match=r"vectors of 4,001 dimensions\. Expected at most 4,000"):
        export_index(replace(index, data=data), "host=nowhere.invalid")


def test_an_index_build_that_outgrows_maintenance_work_mem_is_reported(
    index: Index, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    small = f"{database}?options=-c%20maintenance_work_mem%3D64kB"
    assert export_index(large_index(index, 10, 300, 50), small).maintenance_work_mem == "64kB"
    assert "hnsw graph no longer fits into maintenance_work_mem" in capsys.readouterr().err


def run(*arguments: object) -> Any:
    return CliRunner().invoke(build_app(), ["export", *map(str, arguments)])


def test_the_command_writes_into_a_schema(index: Index, database: str) -> None:
    result = run(index.folder, "--postgres", database, "--json")
    assert result.exit_code == 0, result.exception
    report = json.loads(result.stdout)
    assert report["schema"] == "modegraph" and report["maintenance_work_mem"] == "64MB"
    assert report["documents"] == len(index.sources()) and report["database"] == database
    result = run(index.folder, "--postgres", database, "--schema", "mine")
    assert result.exit_code == 0 and f"{database}, schema mine: {len(index.sources())} documents, " in result.stdout
    assert result.stdout.rstrip().endswith("indexes built with maintenance_work_mem = 64MB")
    assert schemas(database) == {"modegraph", "mine"}


def test_a_schema_needs_postgresql_and_each_export_has_one_format(index: Index, database: str, tmp_path: Path) -> None:
    assert "a schema only with --postgres" in str(
        run(index.folder, "--html", tmp_path / "a", "--schema", "s").exception
    )
    assert "a limit only with --html" in str(run(index.folder, "--postgres", database, "--page-limit", 3).exception)
    both = str(run(index.folder, "--html", tmp_path / "a", "--postgres", database).exception)
    assert both.startswith("--html and --postgres. Expected one of --graphml, --parquet, --html, --postgres")
