"""The ledger of model calls in the database of an index: rows as in graph/store/ledger_file.py, shared by processes on any machine."""

from pathlib import Path

import psycopg

from graph.postgres.connect import connect, database_of, dsn_of, report_refusals, transaction
from graph.postgres.schema import SCHEMA, check_schema
from graph.store.ledger_file import CALL_COLUMNS, CallRow

_GET = f"SELECT {CALL_COLUMNS} FROM {SCHEMA}.calls WHERE key = %s"
_PUT = f"INSERT INTO {SCHEMA}.calls ({CALL_COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"
_DROP = f"DELETE FROM {SCHEMA}.calls WHERE key = %s"


class PostgresCalls:
    """The table `calls` in the database of the index in a folder. UserError if the database cannot be reached, or if `check_schema` refuses it."""

    def __init__(self, folder: Path) -> None:
        self._dsn = dsn_of(folder)
        with transaction(self._dsn) as connection:
            check_schema(connection, database_of(self._dsn))
        self._connection = connect(self._dsn)

    def get(self, key: str) -> CallRow | None:
        return self._run(_GET, (key,)).fetchone()  # type: ignore[return-value]

    def put(self, row: CallRow) -> None:
        """Commit a row, unless a row with its key exists or a string in it contains NUL, which PostgreSQL cannot store."""
        if not any(isinstance(value, str) and "\0" in value for value in row):
            self._run(_PUT, row)

    def drop(self, key: str) -> None:
        self._run(_DROP, (key,))

    def _run(self, statement: str, parameters: tuple[object, ...]) -> "psycopg.Cursor[tuple[object, ...]]":
        """Run a statement as a transaction, and again on a new connection if the connection broke: all statements are idempotent."""
        with report_refusals(self._dsn):
            try:
                return self._connection.execute(statement, parameters)
            except psycopg.OperationalError:
                if not self._connection.broken:
                    raise
                self._connection = connect(self._dsn)
                return self._connection.execute(statement, parameters)
