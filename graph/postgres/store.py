"""A store in PostgreSQL (graph/store/rows.py): the same statements on a server, plus what PostgreSQL offers for fast and safe writes; and the
ledger of model calls in that database, which processes on any machine share, with rows as in graph/store/ledger_file.py.

The readings of one transaction are written with one or two statements per table, however many readings there are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from graph.errors import UserError
from graph.extract.entities import entity_key
from graph.extract.extraction import Occurrence, Reading
from graph.postgres.connect import Connection, connect, database_of, dsn_of, replace_nul, report_refusals, transaction
from graph.postgres.schema import SCHEMA, check_schema
from graph.postgres.turn import Turn, kept_alive
from graph.shared.ids import content_id
from graph.store.ledger_file import CALL_COLUMNS, CallRow
from graph.store.rows import AMONG, TABLES, Cursor, Store

_TABLE_NAME = re.compile(rf"\b(FROM|JOIN|INTO|UPDATE) ({'|'.join(TABLES)})\b")


class PostgresStore(Store):
    """The store of an index in a database: a writer's if `turn` is given, else read-only. UserError as in `check_schema`."""

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
        """Buffer the reading of a passage; all readings of a transaction are written when it ends."""
        self._readings.append(reading)

    def _begin(self) -> None:
        self._readings.clear()
        assert self._turn is not None, "the store was opened read-only; to write, open it with a turn"
        with report_refusals(self._connection.dsn):
            self._turn.begin(self._connection.server)

    def _undo(self) -> None:
        if not self._connection.server.closed:
            super()._undo()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with super().transaction():
            with kept_alive(self._connection.server):
                yield
            assert self._turn is not None
            with report_refusals(self._connection.dsn):
                if self._readings:
                    put_readings(self._connection.server, self._readings)
                self._turn.renew(self._connection.server)


class _Statements:
    """A connection that runs the statements of graph/store/rows.py."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.server = connect(dsn)

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Cursor:
        values = [json.loads(each) for each in parameters] if AMONG in statement else parameters
        with report_refusals(self.dsn):
            return self.server.execute(to_psycopg(statement), values)

    def executemany(self, statement: str, parameters: Iterable[Sequence[Any]]) -> None:
        with report_refusals(self.dsn), self.server.cursor() as cursor:
            cursor.executemany(to_psycopg(statement), parameters)

    def close(self) -> None:
        with suppress(UserError), report_refusals(self.dsn):
            self.server.close()


@cache
def to_psycopg(statement: str) -> str:
    """A statement of graph/store/rows.py for psycopg, with schema-qualified tables, because a search_path would outlive the statement in a connection pooler.

    >>> to_psycopg("SELECT row FROM topics WHERE id = ?")
    'SELECT row FROM modegraph_index.topics WHERE id = %s'
    """
    statement = _TABLE_NAME.sub(rf"\1 {SCHEMA}.\2", statement.replace("%", "%%"))
    return statement.replace(AMONG, "= ANY(?)").replace("?", "%s")


_INSERT_PASSAGES = f"""INSERT INTO {SCHEMA}.passages (id, source, "order", "start", "end", reader, dropped)
    SELECT * FROM unnest(%s::text[], %s::text[], %s::int8[], %s::int8[], %s::int8[], %s::text[], %s::int8[])
    ON CONFLICT (id) DO UPDATE SET reader = excluded.reader, dropped = excluded.dropped RETURNING id, row"""
_NEXT_KEYS = f"SELECT nextval(pg_get_serial_sequence('{SCHEMA}.occurrences', 'row')) FROM generate_series(1, %s)"


def put_readings(connection: Connection, readings: Sequence[Reading]) -> None:
    """Store the readings of passages, new or previously quarantined, as `Store.put_reading` does."""
    passages = [each.passage for each in readings]
    changed = f"INSERT INTO {SCHEMA}.changed SELECT DISTINCT unnest(%s::text[]) ON CONFLICT DO NOTHING"
    connection.execute(changed, ([each.source for each in passages],))
    columns = [[getattr(each, name) for each in passages] for name in ("id", "source", "order", "start", "end")]
    columns += [[each.reader for each in readings], [each.dropped for each in readings]]
    put = connection.execute(_INSERT_PASSAGES, columns)
    row_of: dict[str, int] = {str(identity): int(str(row)) for identity, row in put}
    connection.execute(f"DELETE FROM {SCHEMA}.quarantine WHERE passage = ANY(%s)", (list(row_of.values()),))
    failures = [(row_of[each.passage.id], each.failure) for each in readings if each.failure is not None]
    rows = ((row, replace_nul(each.problem), replace_nul(each.reply), each.attempts) for row, each in failures)
    _copy_rows(connection, "quarantine", ("passage", "problem", "reply", "attempts"), rows)
    pairs = [(row_of[each.passage.id], occurrence) for each in readings for occurrence in each.occurrences]
    _put_occurrences(connection, pairs)


def _put_occurrences(connection: Connection, pairs: Sequence[tuple[int, Occurrence]]) -> None:
    """Insert (passage key, occurrence) pairs and their mentions, topics and facts; of equal rows only the first is inserted."""
    propositions = _keys_of_texts(connection, "propositions", "text", "proposition", (each.text for _, each in pairs))
    spellings = list(chain.from_iterable(each.entities for _, each in pairs))
    entities = _keys_of_texts(connection, "entities", "key", "entity", map(entity_key, spellings))
    topic_texts = chain.from_iterable(each.topics for _, each in pairs)
    topics = _keys_of_texts(connection, "topics", "text", "topic", topic_texts)

    def entity(spelling: str) -> int:
        return entities[entity_key(spelling)]

    keys = [int(str(key)) for (key,) in connection.execute(_NEXT_KEYS, (len(pairs),))]
    keyed = [(key, passage, each) for key, (passage, each) in zip(keys, pairs, strict=True)]
    occurrences = ((key, propositions[each.text], passage, each.start, each.end) for key, passage, each in keyed)
    _copy_rows(connection, "occurrences", ("row", "proposition", "passage", "start", "end"), occurrences)
    spelling_of = {(key, entity(name)): name for key, _, each in keyed for name in reversed(each.entities)}
    mentions = ((*pair, name) for pair, name in spelling_of.items())
    _copy_rows(connection, "mentions", ("occurrence", "entity", "spelling"), mentions)
    topic_rows = {(key, topics[topic]): None for key, _, each in keyed for topic in each.topics}
    _copy_rows(connection, "occurrence_topics", ("occurrence", "topic"), topic_rows)
    facts = {
        (key, entity(fact.subject), fact.relation, entity(fact.object)): None
        for key, _, each in keyed
        for fact in each.facts
    }
    _copy_rows(connection, "facts", ("occurrence", "subject", "relation", "object"), facts)


def _keys_of_texts(
    connection: Connection, table: str, column: str, kind: str, texts: Iterable[str]
) -> Mapping[str, int]:
    """The integer key of each text's row, which is inserted if it is missing."""
    ids = {content_id(kind, text): text for text in texts}
    insert = f"INSERT INTO {SCHEMA}.{table} (id, {column}) SELECT * FROM unnest(%s::text[], %s::text[]) ON CONFLICT DO NOTHING"
    connection.execute(insert, (list(ids), list(ids.values())))
    rows = connection.execute(f"SELECT id, row FROM {SCHEMA}.{table} WHERE id = ANY(%s)", (list(ids),))
    return {ids[str(identity)]: int(str(row)) for identity, row in rows}


def _copy_rows(connection: Connection, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(SCHEMA, table), names)
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for row in rows:
            copy.write_row(row)


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

    def _run(self, statement: str, parameters: tuple[object, ...]) -> psycopg.Cursor[tuple[object, ...]]:
        """Run a statement as a transaction, and again on a new connection if the connection broke: all statements are idempotent."""
        with report_refusals(self._dsn):
            try:
                return self._connection.execute(statement, parameters)
            except psycopg.OperationalError:
                if not self._connection.broken:
                    raise
                self._connection = connect(self._dsn)
                return self._connection.execute(statement, parameters)
