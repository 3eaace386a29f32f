"""The readings of one transaction into their tables, a statement a table however many they are (one by one: graph/store/store.py)."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from psycopg import sql

from graph.extract.entities import entity_key
from graph.extract.types import Occurrence, Reading
from graph.postgres.store.connect import Connection
from graph.postgres.store.migrate import SCHEMA
from graph.shared.ids import content_id

INSTEAD_OF_NUL = "\ufffd"
_PASSAGES = f"""INSERT INTO {SCHEMA}.passages (id, source, "order", "start", "end", reader, dropped)
    SELECT * FROM unnest(%s::text[], %s::text[], %s::int8[], %s::int8[], %s::int8[], %s::text[], %s::int8[])
    ON CONFLICT (id) DO UPDATE SET reader = excluded.reader, dropped = excluded.dropped RETURNING id, row"""
_KEYS = f"SELECT nextval(pg_get_serial_sequence('{SCHEMA}.occurrences', 'row')) FROM generate_series(1, %s)"


def put_readings(connection: Connection, readings: Sequence[Reading]) -> None:
    """Keep what came of passages, each new or quarantined until now, as `Store.put_reading` does."""
    passages = [each.passage for each in readings]
    changed = f"INSERT INTO {SCHEMA}.changed SELECT DISTINCT unnest(%s::text[]) ON CONFLICT DO NOTHING"
    connection.execute(changed, ([each.source for each in passages],))
    columns = [[getattr(each, name) for each in passages] for name in ("id", "source", "order", "start", "end")]
    put = connection.execute(
        _PASSAGES, (*columns, [each.reader for each in readings], [each.dropped for each in readings])
    )
    row_of: dict[str, int] = {str(identity): int(str(row)) for identity, row in put}
    connection.execute(f"DELETE FROM {SCHEMA}.quarantine WHERE passage = ANY(%s)", (list(row_of.values()),))
    failures = [(row_of[each.passage.id], each.failure) for each in readings if each.failure is not None]
    rows = ((row, _clean(found.problem), _clean(found.reply), found.attempts) for row, found in failures)
    _copy(connection, "quarantine", ("passage", "problem", "reply", "attempts"), rows)
    _put_occurrences(connection, [(row_of[each.passage.id], found) for each in readings for found in each.occurrences])


def _put_occurrences(connection: Connection, found: Sequence[tuple[int, Occurrence]]) -> None:
    """Occurrences by the integer key of their passage, and what hangs on them: new rows all, the first of equal ones stands."""
    propositions = _named(connection, "propositions", "text", "proposition", (each.text for _, each in found))
    spelt = list(chain.from_iterable(each.entities for _, each in found))
    entities = _named(connection, "entities", "key", "entity", map(entity_key, spelt))
    topics = _named(connection, "topics", "text", "topic", chain.from_iterable(each.topics for _, each in found))

    def entity(spelling: str) -> int:
        return entities[entity_key(spelling)]

    keys = [int(str(key)) for (key,) in connection.execute(_KEYS, (len(found),))]
    placed = [(key, passage, each) for key, (passage, each) in zip(keys, found, strict=True)]
    occurrences = ((key, propositions[each.text], passage, each.start, each.end) for key, passage, each in placed)
    _copy(connection, "occurrences", ("row", "proposition", "passage", "start", "end"), occurrences)
    mentions = {(key, entity(name)): name for key, _, each in placed for name in reversed(each.entities)}
    _copy(connection, "mentions", ("occurrence", "entity", "spelling"), ((*at, name) for at, name in mentions.items()))
    about = {(key, topics[topic]): None for key, _, each in placed for topic in each.topics}
    _copy(connection, "occurrence_topics", ("occurrence", "topic"), about)
    facts = {
        (key, entity(fact.subject), fact.relation, entity(fact.object)): None
        for key, _, each in placed
        for fact in each.facts
    }
    _copy(connection, "facts", ("occurrence", "subject", "relation", "object"), facts)


def _named(connection: Connection, table: str, column: str, kind: str, texts: Iterable[str]) -> Mapping[str, int]:
    """The integer key of each text's row, which is inserted where there is none."""
    ids = {content_id(kind, text): text for text in texts}
    insert = f"INSERT INTO {SCHEMA}.{table} (id, {column}) SELECT * FROM unnest(%s::text[], %s::text[]) ON CONFLICT DO NOTHING"
    connection.execute(insert, (list(ids), list(ids.values())))
    rows = connection.execute(f"SELECT id, row FROM {SCHEMA}.{table} WHERE id = ANY(%s)", (list(ids),))
    return {ids[str(identity)]: int(str(row)) for identity, row in rows}


def _copy(connection: Connection, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(SCHEMA, table), names)
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for row in rows:
            copy.write_row(row)


def _clean(text: str) -> str:
    """A model's reply without NUL, which PostgreSQL cannot hold."""
    return text.replace("\0", INSTEAD_OF_NUL)
