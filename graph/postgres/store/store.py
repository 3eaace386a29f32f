"""A store over PostgreSQL (graph/store/store.py): the same statements in another server, and what only it can do quickly or safely."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from graph.extract.types import Reading
from graph.postgres.store.connect import connect, database_of, refusals_told, transaction
from graph.postgres.store.migrate import SCHEMA, check_schema
from graph.postgres.store.readings import put_readings
from graph.postgres.store.turn import Turn
from graph.shared.errors import UserError
from graph.store.store import AMONG, Cursor, Store

TABLES = (
    *("meta", "documents", "passages", "propositions", "entities", "occurrences", "mentions", "topics"),
    *("occurrence_topics", "facts", "quarantine", "summaries", "changed"),
)
"""That a store reads and writes."""
_NAMED = re.compile(rf"\b(FROM|JOIN|INTO|UPDATE) ({'|'.join(TABLES)})\b")


class PostgresStore(Store):
    """The store of an index in a database: a writer's, which has the turn, or without one for reading alone. UserError as `check_schema`."""

    def __init__(self, dsn: str, turn: Turn | None = None) -> None:
        super().__init__()
        if turn is None:
            with transaction(dsn) as connection:
                check_schema(connection, database_of(dsn))
        self._connection: _Statements = _Statements(dsn)
        self._turn = turn
        self._readings: list[Reading] = []

    def close(self) -> None:
        self._connection.close()

    def vacuum(self) -> None:
        self._connection.execute("VACUUM (ANALYZE) " + ", ".join(f"{SCHEMA}.{table}" for table in TABLES))

    def put_reading(self, reading: Reading) -> None:
        """Keep what came of a passage; all of a transaction are written when it ends."""
        self._readings.append(reading)

    def _begin(self) -> None:
        self._readings.clear()
        assert self._turn is not None, "a store that was opened to be read"
        with refusals_told(self._connection.dsn):
            self._turn.begin(self._connection.server)

    def _undo(self) -> None:
        if not self._connection.server.closed:
            super()._undo()

    def _committed(self) -> None:
        """Nothing: the server keeps its own log."""

    def _finish(self) -> None:
        assert self._turn is not None
        with refusals_told(self._connection.dsn):
            if self._readings:
                put_readings(self._connection.server, self._readings)
            self._turn.hold(self._connection.server)


class _Statements:
    """A connection that takes the statements of graph/store/store.py."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.server = connect(dsn)

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Cursor:
        given = [json.loads(each) for each in parameters] if AMONG in statement else parameters
        with refusals_told(self.dsn):
            return self.server.execute(translated(statement), given)

    def executemany(self, statement: str, parameters: Iterable[Sequence[Any]]) -> None:
        with refusals_told(self.dsn), self.server.cursor() as cursor:
            cursor.executemany(translated(statement), parameters)

    def close(self) -> None:
        with suppress(UserError), refusals_told(self.dsn):
            self.server.close()


@cache
def translated(statement: str) -> str:
    """A statement of graph/store/store.py as psycopg takes it, with tables named by their schema: a search_path would outlive it in a pooler.

    >>> translated("SELECT row FROM topics WHERE id = ?")
    'SELECT row FROM modegraph_index.topics WHERE id = %s'
    """
    statement = _NAMED.sub(rf"\1 {SCHEMA}.\2", statement.replace("%", "%%"))
    return statement.replace(AMONG, "= ANY(?)").replace("?", "%s")
