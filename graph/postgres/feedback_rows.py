"""Rows of feedback (graph/feedback.py) in the database of an index, shared by all servers of the index."""

from collections.abc import Sequence
from pathlib import Path

from graph.postgres.connect import database_of, dsn_of, transaction
from graph.postgres.schema import SCHEMA, check_schema, migrate

_TABLE = f"{SCHEMA}.feedback"
_COLUMNS = 'id, "user", at, consent, kind, question, said'
_PUT = f"INSERT INTO {_TABLE} ({_COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s)"
_BYTES = f"SELECT pg_total_relation_size('{_TABLE}')"
_READ = f"SELECT {_COLUMNS} FROM {_TABLE} {{}} ORDER BY row"
_DELETE = f'DELETE FROM {_TABLE} WHERE "user" = %s'

FeedbackRow = tuple[str, str, str, int, str, str, str]


class PostgresFeedback:
    """The table `feedback` of the index in a folder; Unavailable if the database cannot be reached, and as in `check_schema`."""

    def __init__(self, folder: Path) -> None:
        self._dsn = dsn_of(folder)

    def put(self, row: FeedbackRow, max_bytes: int) -> bool:
        """Commit a row; False, with nothing written, if the table has reached `max_bytes`. The schema is migrated first."""
        with transaction(self._dsn) as connection:
            migrate(connection, database_of(self._dsn))
            (size,) = connection.execute(_BYTES).fetchone() or (0,)
            if int(str(size)) >= max_bytes:
                return False
            connection.execute(_PUT, row)
        return True

    def all(self) -> list[FeedbackRow]:
        """Every row, oldest first."""
        return self._read(_READ.format(""))

    def of_user(self, user: str) -> list[FeedbackRow]:
        """The rows of a user, oldest first."""
        return self._read(_READ.format('WHERE "user" = %s'), (user,))

    def delete_user(self, user: str) -> int:
        """Delete the rows of a user; returns how many there were."""
        with transaction(self._dsn) as connection:
            check_schema(connection, database_of(self._dsn))
            return connection.execute(_DELETE, (user,)).rowcount

    def _read(self, statement: str, values: Sequence[object] = ()) -> list[FeedbackRow]:
        with transaction(self._dsn) as connection:
            check_schema(connection, database_of(self._dsn))
            return connection.execute(statement, values).fetchall()  # type: ignore[return-value]
