"""Copies an index between its folder and PostgreSQL, in either direction: all rows of index.sqlite, of the call ledger and of the feedback, or none.

Arrays and vectors are not copied: in a folder copied out of a database they are derived again, with the encoder.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from psycopg import sql

from graph.build.lifecycle import resume_build
from graph.build.read_passages import no_model
from graph.build.stores import read_settings
from graph.errors import UserError
from graph.feedback import FEEDBACK, open_feedback_file
from graph.postgres.connect import Connection, database_of, dsn_of, replace_nul, transaction
from graph.postgres.schema import check_schema, migrate, restart_keys
from graph.shared.console import track
from graph.shared.disk import report_full_disk
from graph.store.index_settings import has_database
from graph.store.ledger_file import LEDGER, LEDGER_TABLE, ledger_damage
from graph.store.lock import writer_lock
from graph.store.rows import TABLES
from graph.store.seal import check_undamaged
from graph.store.sqlite import SQLITE_FILE, SqliteStore, open_to_read
from graph.types import OpenEncoder, OpenModel

COPIED_TABLES = tuple(table for table in TABLES if table != "changed")
"""The copied tables of index.sqlite, each after the tables that it references."""
CALLS_TABLE = "calls"
"""The table of the ledger."""
FEEDBACK_TABLE = "feedback"
"""The table of readers' feedback."""
POSTGRES_TYPES = {"TEXT": "text", "INTEGER": "int8"}
Row = tuple[object, ...]


def copy_to_database(folder: Path, dsn: str) -> dict[str, int]:
    """Copy the rows of an index into a database without an index; return row counts by table. Writers of the index wait meanwhile.

    UserError, with nothing copied, when index.sqlite, the ledger or the feedback is damaged, when the rows of the index are already in a database, when
    the database at `dsn` already contains an index or cannot be written to, or when a document contains a NUL character, which PostgreSQL cannot store.
    """
    database = database_of(dsn)
    if has_database(folder):
        found = f"{folder}: its rows are in {database_of(dsn_of(folder))}"
        raise UserError(found, "an index with its rows in the folder", "copy that database into a folder first")
    read_settings(folder)
    with writer_lock(folder), transaction(dsn) as connection:
        check_undamaged(folder)
        if problem := ledger_damage(folder):
            raise UserError(f"{folder / LEDGER}: {problem}", "an intact ledger", f"run: modegraph repair {folder}")
        migrate(connection, database)
        if _has_index(connection):
            raise UserError(f"{database}: already contains an index", "a database without one", "name another database")
        connection.execute("SET LOCAL statement_timeout = 0")
        with closing(open_to_read(folder / SQLITE_FILE)) as store:
            counts = {
                table: _send(connection, store, table) for table in track(COPIED_TABLES, "Tables", len(COPIED_TABLES))
            }
        counts |= {CALLS_TABLE: 0, FEEDBACK_TABLE: 0}
        if (folder / LEDGER).exists():
            with closing(open_to_read(folder / LEDGER)) as ledger:
                counts[CALLS_TABLE] = _send(connection, ledger, CALLS_TABLE)
        if (folder / FEEDBACK).exists():
            with open_feedback_file(folder / FEEDBACK, "rw") as feedback:
                counts[FEEDBACK_TABLE] = _send(connection, feedback, FEEDBACK_TABLE)
        restart_keys(connection)
    return counts


def copy_to_folder(
    dsn: str, folder: Path, open_encoder: OpenEncoder, open_model: OpenModel = no_model
) -> dict[str, int]:
    """Copy the index in a database into a new folder, and derive its arrays there; return row counts by table.

    UserError, leaving no new file, when the folder is not empty, when the database contains no index or its schema has another version, or when the
    connection ends early. If only the arrays cannot be built, the rows remain, and `modegraph resume` continues.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder}: exists and is not an empty folder", "a new or empty folder", "name another folder")
    database = database_of(dsn)
    with transaction(dsn) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        connection.execute("SET LOCAL statement_timeout = 0")
        check_schema(connection, database)
        if not _has_index(connection):
            raise UserError(f"{database}: contains no index", "a database with one", "name another database")
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with report_full_disk(folder):
                counts = _receive_all(connection, folder)
        except BaseException:
            for file in folder.iterdir():
                file.unlink()
            raise
    resume_build(folder, open_encoder, open_model)
    return counts


def _has_index(connection: Connection) -> bool:
    return connection.execute("SELECT 1 FROM meta LIMIT 1").fetchone() is not None


def _receive_all(connection: Connection, folder: Path) -> dict[str, int]:
    """Copy the rows of an index, and the calls of its ledger and the feedback on its answers, if any, into new files."""
    SqliteStore(folder).close()
    with closing(sqlite3.connect(folder / SQLITE_FILE)) as store, store:
        counts = {
            table: _receive(connection, store, table) for table in track(COPIED_TABLES, "Tables", len(COPIED_TABLES))
        }
        # Deriving the arrays increments the generation, which is then that of the copied rows.
        store.execute("UPDATE meta SET value = value - 1 WHERE key = 'generation'")
    with closing(sqlite3.connect(folder / LEDGER)) as ledger, ledger:
        ledger.execute(LEDGER_TABLE)
        counts[CALLS_TABLE] = _receive(connection, ledger, CALLS_TABLE)
    with open_feedback_file(folder / FEEDBACK, "rwc") as feedback, feedback:
        counts[FEEDBACK_TABLE] = _receive(connection, feedback, FEEDBACK_TABLE)
    for table, name in ((CALLS_TABLE, LEDGER), (FEEDBACK_TABLE, FEEDBACK)):
        if not counts[table]:
            (folder / name).unlink()
    return counts


def _columns(file: sqlite3.Connection, table: str) -> dict[str, str]:
    """The columns of an SQLite table, with PostgreSQL's types."""
    rows = file.execute("SELECT name, type FROM pragma_table_info(?)", (table,))
    return {name: POSTGRES_TYPES[kind] for name, kind in rows}


def _copy_statement(table: str, columns: Iterable[str], direction: str) -> sql.Composed:
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    return sql.SQL("COPY {} ({}) " + direction + " (FORMAT binary)").format(sql.Identifier(table), names)


def _send(connection: Connection, file: sqlite3.Connection, table: str) -> int:
    """Copy the rows of an SQLite table into the PostgreSQL table of the same name; return their number. NUL, which PostgreSQL cannot store, is refused in
    documents and replaced by U+FFFD elsewhere; a call that contains it is left out, because its checksum would no longer fit.
    """
    columns, count = _columns(file, table), 0
    names = ", ".join(f'"{name}"' for name in columns)
    with connection.cursor().copy(_copy_statement(table, columns, "FROM STDIN")) as rows:
        rows.set_types(list(columns.values()))
        for row in file.execute(f"SELECT {names} FROM {table} ORDER BY 1"):
            if any(isinstance(value, str) and "\0" in value for value in row):
                if table == "documents":
                    remedy = "remove the character from the document, index it again, then copy"
                    raise UserError(
                        f"{table} {str(row[0])!r}: a NUL character", "text that PostgreSQL can store", remedy
                    )
                if table == CALLS_TABLE:
                    continue
                row = tuple(replace_nul(value) if isinstance(value, str) else value for value in row)
            rows.write_row(row)
            count += 1
    return count


def _receive(connection: Connection, file: sqlite3.Connection, table: str) -> int:
    """Copy all rows of a PostgreSQL table into the SQLite table of the same name; return their number."""
    columns = _columns(file, table)
    placeholders = ", ".join("?" * len(columns))

    def all_rows() -> Iterator[Row]:
        with connection.cursor().copy(_copy_statement(table, columns, "TO STDOUT")) as rows:
            rows.set_types(list(columns.values()))
            yield from rows.rows()

    return file.executemany(f"INSERT INTO {table} VALUES ({placeholders})", all_rows()).rowcount
